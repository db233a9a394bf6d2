package orderclose

import (
	"slices"
	"strings"
	"time"
)

// MaxTolerance bounds how much longer than a record's remaining delay its
// bucket may be; see Bucket.Tolerance. Part of the wire format: producers in
// other languages pick with the same number.
const MaxTolerance = 30 * time.Second

const (
	// ReadLead is how long before a record may have to leave its bucket a relay has
	// it in memory: time for a fetch, and for the group of a busy broker to answer.
	ReadLead = 1 * time.Second
	// ReadSlack allows for records that were put into a bucket a little too early or
	// appended a little late: a producer's clock, a retried request.
	ReadSlack = 5 * time.Second
)

// Bucket is a delay topic: it holds a record for at most Length.
type Bucket struct {
	Topic  string
	Length time.Duration
	// Draining: nothing is put here any more, what is here is still relayed.
	Draining bool
}

// Tolerance is by how much a remaining delay may fall short of the bucket's
// length and still be put there: a tenth of it, at most MaxTolerance. Without
// it an order of 30 minutes, published 20 ms after it was created, would take
// five buckets instead of one.
func (b Bucket) Tolerance() time.Duration {
	return min(MaxTolerance, b.Length/10)
}

// Release is when a record that the broker took at appended leaves the bucket:
// when it is due, and at the latest after the bucket's length, so that no due
// time, however wrong, can keep a record in a bucket or bring it out early.
func (b Bucket) Release(due, appended time.Time) time.Time {
	if end := appended.Add(b.Length); end.Before(due) {
		return end
	}
	return due
}

// Unread is how long after its append a record may stay unread: whoever put it
// here had nearly the bucket's length to wait, so it does not leave before. What
// was appended longer ago belongs in the relay's window. The smallest bucket takes
// whatever is shorter still, and is read whole. Less than 0 is as good as 0.
func (b Bucket) Unread() time.Duration {
	return b.Length - b.Tolerance() - ReadSlack - ReadLead
}

// Buckets are the delay topics of a pipeline, shortest first.
type Buckets []Bucket

// Pick returns the bucket for a record that is due in remaining: the largest
// that is not longer than it by more than its tolerance, else the smallest. Those
// that are draining are left out. It is decided anew whenever a record is
// produced. There must be a bucket that is not draining.
func (bs Buckets) Pick(remaining time.Duration) Bucket {
	smallest := bs[0]
	for _, b := range slices.Backward(bs) {
		if b.Draining {
			continue
		}
		if remaining >= b.Length-b.Tolerance() {
			return b
		}
		smallest = b
	}
	return smallest
}

// Open returns those that are not draining: the ones that Pick picks.
func (bs Buckets) Open() Buckets {
	return slices.DeleteFunc(slices.Clone(bs), func(b Bucket) bool { return b.Draining })
}

// Walk returns the buckets that a record of the given delay passes through
// before it reaches the close topic, if nothing is late: [5m 5m 5m 1m 1m] for
// 17 minutes. A delay of nothing, or less, passes through none.
func (bs Buckets) Walk(delay time.Duration) []Bucket {
	var walk []Bucket
	for delay > 0 {
		b := bs.Pick(delay)
		walk = append(walk, b)
		delay -= b.Length
	}
	return walk
}

// MostHops returns the greatest number of buckets that any delay up to the given
// one passes through, if nothing is late: the length of the longest Walk.
func (bs Buckets) MostHops(longest time.Duration) int { return bs.Open().mostHops(longest) }

// mostHops is MostHops where none is draining.
func (bs Buckets) mostHops(longest time.Duration) int {
	if longest <= 0 {
		return 0
	}
	last := len(bs) - 1
	b := bs[last]
	if last == 0 { // the smallest takes whatever is left
		return int((longest + b.Length - 1) / b.Length)
	}
	// Delays below this go to the buckets before b. From it on b is taken again and
	// again until what remains is below; the most often, remaining at most what the
	// longest leaves, or once less often, remaining anything below.
	from := b.Length - b.Tolerance()
	most := bs[:last].mostHops(min(longest, from-1))
	if longest >= from {
		times := (longest-from)/b.Length + 1
		most = max(most+int(times)-1, int(times)+bs[:last].mostHops(longest-times*b.Length))
	}
	return most
}

// ShortDuration writes d as people write delays: 5m rather than 5m0s. It is the
// form that topic names carry.
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
