package delayrelay

import (
	"fmt"
	"math"
	"time"

	"orderclose"
)

// minStay is how long a record that is not due stays in memory at least, unless half the
// bucket's tolerance is less: so much later it still fits the bucket that was planned.
const minStay = 1 * time.Second

// readOn returns when a partition of bucket b has to be read on, if the last
// record read from it was appended at the given moment. Later records were
// appended later, and a record was put into b because it had nearly b's length
// to wait; so none of them leaves before. The smallest bucket takes whatever is
// shorter still, and is read at once. An append time ahead of now is somebody's
// wrong clock, and counts as now.
func readOn(b orderclose.Bucket, smallest bool, appended, now time.Time) time.Time {
	if smallest {
		return time.Time{}
	}
	if appended.After(now) {
		appended = now
	}
	return appended.Add(b.Unread())
}

// mispicked says whether a record was put into bucket b although another would
// have suited it by more than the slack: it may be read too late.
func mispicked(b orderclose.Bucket, smallest bool, due, appended int64) bool {
	return !smallest && due < appended+(b.Length-b.Tolerance()-orderclose.ReadSlack).Milliseconds()
}

// release is when a record that is read now leaves bucket b: when it is due, and at the
// latest after the bucket's length. All times are unix milliseconds by the clock that
// the relay goes by.
//
// The append time is by the clock of the partition's leader, which may differ from that
// clock or be set. An append time in the future counts as now. A record that is not due
// stays for a while after it was read, whatever its append time says: without that, a
// record whose append time lies too far in the past would hop into its own bucket again
// and again. In the smallest bucket, which is read while records are appended, it stays
// for the bucket's length.
func release(b orderclose.Bucket, smallest bool, due, appended, now int64) int64 {
	stay := min(minStay, b.Tolerance()/2)
	if smallest {
		stay = b.Length
	}
	end := min(appended, now) + b.Length.Milliseconds()
	return min(due, max(end, now+stay.Milliseconds()))
}

// route is where a record goes when it leaves its bucket.
type route struct {
	topic string // a topic to append it to, or "" for a dead letter
	close bool   // topic is the close topic
	cause string // of the dead letter
	why   string // the cause in words
}

// decide says where a record goes that leaves its bucket now: to the close topic
// if it is due, else to the bucket picked anew for what remains. A due time
// beyond any maximum delay, both from its append and from now, is nobody's order.
// Times are unix milliseconds.
func (o *Options) decide(due, appended, now int64) route {
	if now >= due {
		return route{topic: o.CloseTopic, close: true}
	}
	// Neither difference can overflow into the past: due lies after now, and the
	// clocks are of this age.
	if ahead := milliseconds(due - max(appended, now)); orderclose.BeyondLimit(ahead) {
		return route{cause: "due_too_far", why: fmt.Sprintf("due %d ms, which is %v ahead; at most %v is possible", due, ahead, orderclose.MaxDelayLimit)}
	}
	return route{topic: o.Buckets.Pick(milliseconds(due - now)).Topic}
}

// milliseconds is n as a duration; more than a duration can hold is its maximum.
func milliseconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}
