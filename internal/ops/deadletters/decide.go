package deadletters

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// Rules say to which topic a redrive sends each record.
type Rules struct {
	Buckets orderclose.Buckets
	// Events is the topic of events. Dead letters of events are sent there unchanged, if Happened returns no refusal:
	// Pipeline.EventHappened of internal/ops, which asks the database.
	Events   string
	Happened func(ctx context.Context, event wire.Message) (refusal string)
}

// OutboxOfEvents is the source topic of dead letters that the dispatcher makes of events that could not
// be published: the table of their rows.
const OutboxOfEvents = "outbox_events"

// decide returns the topic and the record to send for a dead letter at this moment. If the
// dead letter cannot be sent, refusal says why.
func (r Rules) decide(ctx context.Context, l Letter, now time.Time) (topic string, m wire.Message, refusal string) {
	if l.Source.Topic == r.Events || l.Source.Topic == OutboxOfEvents {
		if cut := l.cut(); cut != "" {
			return "", m, cut + ": the rest is not the original record"
		}
		if why := r.Happened(ctx, l.Record); why != "" {
			return "", m, why
		}
		return r.Events, l.Record, ""
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
