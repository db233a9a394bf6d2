package deadletters

import (
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// Again returns the topic and the record that send the dead letter again at this moment. If that cannot be done, refusal says why.
//
// An event is refused. Every part of the pipeline may write dead letters, and a reader of events may ship goods or give
// money back. The database knows which events there were.
func (t *Topic) Again(l Letter, buckets orderclose.Buckets, now time.Time) (topic string, m wire.Message, refusal string) {
	if t.isEvent(l) {
		return "", m, "it is an event: orderclose events again writes it again, from the database" //mutant:event-sent-again
	}
	record, err := l.Record.Decode()
	if err != nil {
		return "", m, unreadable(l, err)
	}
	if ahead := record.Order.Due.Sub(now); wire.BeyondLimit(ahead) {
		return "", m, fmt.Sprintf("it is due on %s, further ahead than relays accept (%s)",
			record.Order.Due.UTC().Format(time.RFC3339), orderclose.ShortDuration(wire.MaxDelayLimit))
	}
	// It starts again: the original due time, and no failed attempts. A relay hands an order that is due to the closers at once.
	release := record.Order.Due
	if release.Before(now) {
		release = now
	}
	record = wire.Record{Order: record.Order, Release: release, Traceparent: record.Traceparent, Lane: wire.LaneReplay}
	if m, err = record.Encode(); err != nil {
		return "", m, err.Error()
	}
	return buckets.Pick(release.Sub(now)).Topic, m, ""
}

func unreadable(l Letter, err error) string {
	if l.Cause == "corrupt" {
		return "only its offsets are known"
	}
	if cut := l.cut(); cut != "" {
		return cut + ", and the rest is not a valid record: " + err.Error()
	}
	return "it is not a valid record: " + err.Error()
}
