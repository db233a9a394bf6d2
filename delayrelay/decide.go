package delayrelay

import (
	"fmt"
	"math"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

// reading says when a partition is read on. It is a value: each method returns the next one. Pure.
type reading struct {
	began time.Time // when the last fetch began
	on    time.Time // when to read on; a bucket that is read at once waits for readPause at most
}

// view is what a read, and the place of a record, are decided by.
type view struct {
	bucket orderclose.Bucket
	atOnce bool          // the records of the bucket may have any time left, so it is read at once
	now    time.Time     // by the relay's clock
	ahead  time.Duration // how far that is ahead of the clock of the partition's leader, which sets append times
	full   bool          // the window has no room
}

// next reports whether to read on now; if not, wait says after how long to ask again. Zero: a full window is read on after records have left.
func (r reading) next(v view) (room bool, wait time.Duration, then reading) {
	wait = r.on.Sub(v.now)
	switch {
	case v.full: //mutant:window-bytes-unbounded
		return false, 0, r
	case wait > 0 && (!v.atOnce || wait <= readPause) && !v.now.Before(r.began): // before it: the clock was set back //mutant:clock-set-back
		return false, wait, r
	}
	r.began = v.now
	return true, 0, r
}

// after returns the reading after a fetch.
func (r reading) after(f wire.Fetched, v view) reading {
	n := len(f.Records)
	switch {
	case v.atOnce && n > 0 && f.AtEnd:
		r.on = v.now.Add(readPause)
	case v.atOnce:
		r.on = time.Time{}
	case n > 0:
		r.on = nextFetch(v.bucket, time.UnixMilli(v.appended(&f.Records[n-1])), v.now)
	case f.AtEnd:
		r.on = nextIdleFetch(v.bucket, r.began, v.now)
	}
	return r
}

// plan reads when a record is due, and returns its release time in Unix milliseconds.
func (v *view) plan(r *wire.RawRecord) (release int64, err error) {
	if r.DueAt, err = r.Route(); err != nil {
		return 0, err
	}
	return releaseTime(v.bucket, v.atOnce, r.DueAt, v.appended(r), v.now.UnixMilli()), nil
}

// appended returns the append time of a record by the relay's clock, in Unix milliseconds.
func (v *view) appended(r *wire.RawRecord) int64 { return r.Appended + v.ahead.Milliseconds() }

// leaderBehind returns by how much the clock of a partition's leader is behind the relay's clock, at least. It is negative if the leader's
// clock is ahead. The relay sent an append, and got its answer, at the given times of its own clock. The leader's clock showed at.
func leaderBehind(sent, answered, at time.Time) time.Duration {
	return max(sent.Sub(at), 0) + min(answered.Sub(at), 0)
}

// minStay is the minimum time that a record that is not due stays in memory, unless half the bucket's tolerance is shorter. With this delay the
// record still fits the bucket that was planned next.
const minStay = 1 * time.Second

const (
	// readLead is how long before its earliest release time a relay must hold a record in memory. It allows for the time of a fetch and for
	// the consumer group of a busy broker to answer.
	readLead = 1 * time.Second
	// readSlack allows for records that were put into a bucket too early or appended too late, because of a producer's clock or a retried request.
	readSlack = 5 * time.Second
	// readPause is the pause after a fetch that found records in a bucket that is read at once. At 1,000 records a second it saves most of the
	// fetches. A record that arrives with less time left may be up to readPause late.
	readPause = 50 * time.Millisecond
	// shortHop: a record that is due within this time does not hop, but stays in memory. So no hop arrives with less than readPause left.
	shortHop = 2 * readPause
)

// unreadFor returns how long after its append a record may stay unread: the producer put it here because nearly the bucket's length remained.
// A record that was appended longer ago must be in the relay's window. The smallest bucket also takes shorter delays, so it is read at once.
// Treat a negative result as 0.
func unreadFor(b orderclose.Bucket) time.Duration {
	return b.Length - b.Tolerance() - readSlack - readLead
}

// nextFetch returns when a partition of bucket b must be fetched again, if the last record read from it was appended at the given time. Later records
// have later append times, and each was put into b with nearly b's length to wait. So none of them leaves before nextFetch, but for those that a
// producer put into the wrong bucket: the compensator closes their orders. An append time after now comes from a wrong clock and counts as now.
func nextFetch(b orderclose.Bucket, appended, now time.Time) time.Time {
	return earlier(appended, now).Add(unreadFor(b)) //mutant:future-append-fetch
}

// nextIdleFetch is nextFetch for a fetch that began at the given time, and found no new records and the end of the log. Records that are
// appended later wait in b for nearly its length. The pause is only half of that: the broker does not return a record that is not on all
// replicas yet. A beginning after now comes from a clock that was set back, and counts as now.
func nextIdleFetch(b orderclose.Bucket, began, now time.Time) time.Time {
	return earlier(began, now).Add(max(unreadFor(b), 0) / 2)
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// releaseTime returns when a record that is read now leaves bucket b: when it is due, and at the latest after the bucket's length. All times
// are Unix milliseconds by the relay's clock.
//
// The append time comes from the clock of the partition's leader, which may be wrong or be set. An append time in the future counts as now. A record
// that is not due stays for a while after it was read, whatever its append time: a record with an append time too far in the past would otherwise hop
// into its own bucket again and again. With atOnce the record stays for the bucket's length, because it was read soon after its append.
func releaseTime(b orderclose.Bucket, atOnce bool, due, appended, now int64) int64 {
	stay := min(minStay, b.Tolerance()/2)
	if atOnce {
		stay = b.Length //mutant:hop-without-pause
	}
	end := min(appended, now) + b.Length.Milliseconds() //mutant:future-append-stay
	return min(due, max(end, now+stay.Milliseconds()))
}

// route is the destination of a record that leaves its bucket.
type route struct {
	topic  string // the topic to append to; "" for a dead letter
	close  bool   // topic is the close topic
	cause  string // of the dead letter
	detail string // the cause in a sentence
}

// decide returns the destination of a record that leaves its bucket now: the close topic if it is due, else the bucket for the remaining
// time. A record becomes a dead letter if its due time is further ahead than any maximum delay may be (wire.MaxDelayLimit), counted from the
// later of its append time and now. Times are Unix milliseconds.
func (o *Options) decide(due, appended, now int64) route {
	if now >= due { //mutant:early-forward
		return route{topic: o.CloseTopic, close: true}
	}
	// No difference can overflow: due is after now, and now is after 1970.
	if ahead := milliseconds(max(due-max(appended, now), 0)); wire.BeyondLimit(ahead) {
		return route{cause: partition.CauseDueTooFar, detail: fmt.Sprintf("due at %d ms, %v ahead; the maximum is %v", due, ahead, wire.MaxDelayLimit)}
	}
	return route{topic: o.Buckets.Pick(milliseconds(due - now)).Topic} //mutant:smallest-bucket-hops
}

// milliseconds converts n to a Duration. A value that does not fit becomes the maximum Duration.
func milliseconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}
