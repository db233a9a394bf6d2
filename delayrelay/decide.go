package delayrelay

import (
	"fmt"
	"time"

	"orderclose"
)

const (
	// lead is how long before a record may have to leave it should be in memory:
	// time for a fetch, and for the group of a busy broker to answer.
	lead = 1 * time.Second
	// slack allows for records that were put into a bucket a little too early or
	// appended a little late: a producer's clock, a retried request.
	slack = 5 * time.Second
	// maxDelaySlack is by how much a due time may lie past the maximum delay and
	// still be believed: the maximum was checked by the producer's clock.
	maxDelaySlack = 1 * time.Minute
)

// readOn returns when a partition of bucket b has to be read on, if the last
// record read from it was appended at the given moment. Later records were
// appended later, and a record was put into b because it had nearly b's length
// to wait; so none of them leaves before. The smallest bucket takes whatever is
// shorter still, and is read at once.
func readOn(b orderclose.Bucket, smallest bool, appended time.Time) time.Time {
	if smallest {
		return time.Time{}
	}
	return appended.Add(b.Length - b.Tolerance() - slack - lead)
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
// beyond the maximum is nobody's order.
func (o *Options) decide(due, appended, now time.Time) route {
	if ahead := due.Sub(appended); ahead > o.MaxDelay+maxDelaySlack {
		return route{cause: "due_too_far", why: fmt.Sprintf("due %s is %v after it was appended, at most %v is allowed", stamp(due), ahead, o.MaxDelay)}
	}
	if !now.Before(due) {
		return route{topic: o.CloseTopic, close: true}
	}
	return route{topic: o.Buckets.Pick(due.Sub(now)).Topic}
}

// stamp writes a time that may lie beyond what RFC 3339 can say.
func stamp(t time.Time) string {
	return fmt.Sprintf("%d ms", t.UnixMilli())
}
