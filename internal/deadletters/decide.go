package deadletters

import (
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// Rules say to which topic a redrive sends each record.
type Rules struct {
	Buckets orderclose.Buckets
	// Events is the topic of events. A redrive sends no event: every part of the pipeline may write dead letters, and a reader of
	// events may ship goods or give money back. The database knows which events there were.
	Events string
}

// OutboxOfEvents is the source topic of dead letters that the dispatcher makes of events that could not be published: the table of their rows.
const OutboxOfEvents = "outbox_events"

// decide returns the topic and the record to send for a dead letter at this moment. If the dead letter cannot be sent, refusal says why.
func (r Rules) decide(l Letter, now time.Time) (topic string, m wire.Message, refusal string) {
	if l.Source.Topic == r.Events || l.Source.Topic == OutboxOfEvents {
		return "", m, "it is an event: orderclose events again writes it again, from the database" //mutant:event-redriven
	}
	record, err := l.Record.Decode()
	if err != nil {
		return "", m, unreadable(l, err)
	}
	if ahead := record.Order.Due.Sub(now); wire.BeyondLimit(ahead) {
		return "", m, fmt.Sprintf("it is due on %s, further ahead than relays accept (%s)",
			record.Order.Due.UTC().Format(time.RFC3339), orderclose.ShortDuration(wire.MaxDelayLimit))
	}
	// A redrive starts again: the original due time, and no failed attempts. A relay hands an order that is due to the closers at once.
	release := record.Order.Due
	if release.Before(now) {
		release = now
	}
	record = wire.Record{Order: record.Order, Release: release, Traceparent: record.Traceparent, Lane: wire.LaneReplay}
	if m, err = record.Encode(); err != nil {
		return "", m, err.Error()
	}
	return r.Buckets.Pick(release.Sub(now)).Topic, m, ""
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
