package orderclose

import (
	"slices"
	"strings"
	"time"
)

// MaxTolerance is the upper limit of Bucket.Tolerance. It is part of the wire format:
// producers in other languages must pick buckets with the same number.
const MaxTolerance = 30 * time.Second

// Bucket is a delay topic. A record waits in it for at most Length.
type Bucket struct {
	Topic  string
	Length time.Duration
}

// Tolerance returns by how much the bucket may be longer than the remaining delay of an order, if Pick is to choose it: a tenth of the bucket's
// length, at most MaxTolerance. Without it an order of 30 minutes that is published 20 ms after it was created would take five buckets instead of
// one.
func (b Bucket) Tolerance() time.Duration {
	return min(MaxTolerance, b.Length/10)
}

// Release returns the release time of a record that the broker appended at the given time: the due time, but no later than the bucket's length after
// the append. A relay keeps the record for up to 100 ms more if it is due then. A wrong due time cannot keep a record in the bucket for longer. A due
// time that is too early releases the record early.
func (b Bucket) Release(due, appended time.Time) time.Time {
	if end := appended.Add(b.Length); end.Before(due) {
		return end
	}
	return due
}

// Buckets are the delay topics of a pipeline, shortest first.
type Buckets []Bucket

// Pick returns the bucket for a record that is due in remaining: the largest bucket that is not longer than remaining by more than its tolerance, or
// else the smallest. Call Pick again each time a record is produced.
func (bs Buckets) Pick(remaining time.Duration) Bucket {
	smallest := bs[0]
	for _, b := range slices.Backward(bs) {
		if remaining >= b.Length-b.Tolerance() {
			return b
		}
		smallest = b
	}
	return smallest
}

// TopicAt returns the topic for a record with this due time at the time now: the close topic if it is due, or else a bucket. Call it again each time
// a record is produced.
func (bs Buckets) TopicAt(now, due time.Time, closeTopic string) string {
	if remaining := due.Sub(now); remaining > 0 {
		return bs.Pick(remaining).Topic
	}
	return closeTopic
}

// Walk returns the buckets that a record with the given delay passes through before it reaches the close topic, if nothing is late: [5m 5m 5m 1m 1m]
// for 17 minutes. For a delay of 0 or less it returns nil.
func (bs Buckets) Walk(delay time.Duration) []Bucket {
	var walk []Bucket
	for delay > 0 {
		b := bs.Pick(delay)
		walk = append(walk, b)
		delay -= b.Length
	}
	return walk
}

// ShortDuration formats d without trailing zero units: 5m rather than 5m0s. Topic names contain this form.
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
