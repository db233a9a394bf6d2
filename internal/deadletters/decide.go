package deadletters

import (
	"fmt"
	"time"

	"orderclose"
)

// Rules say where records go that are sent again.
type Rules struct {
	Buckets orderclose.Buckets
	// Replay is the topic of orders that are due: one of its own, so that a hundred
	// thousand of them delay no order that is due just now.
	Replay string
	// AsTheyWere are the sources whose records are no orders on their way, and the
	// topic in which those are read.
	AsTheyWere map[string]string
}

// decide says where a dead letter is to be sent at the given moment, and as what;
// or why it cannot be sent, in words.
func (r Rules) decide(l Letter, now time.Time) (topic string, m orderclose.Message, refusal string) {
	if topic := r.AsTheyWere[l.Source.Topic]; topic != "" {
		if cut := l.cut(); cut != "" {
			return "", m, cut + ": what is left of it is not what it was"
		}
		return topic, l.Record, ""
	}
	record, err := l.Record.Decode()
	if err != nil {
		return "", m, unreadable(l, err)
	}
	if ahead := record.Order.Due.Sub(now); orderclose.BeyondLimit(ahead) {
		return "", m, fmt.Sprintf("it is due on %s, further ahead than any relay believes (%s)",
			record.Order.Due.UTC().Format(time.RFC3339), orderclose.ShortDuration(orderclose.MaxDelayLimit))
	}
	// A new life: due when the order is, and nothing tried yet.
	record = orderclose.Record{Order: record.Order, Release: record.Order.Due, Traceparent: record.Traceparent, Lane: orderclose.LaneReplay}
	if m, err = record.Encode(); err != nil {
		return "", m, err.Error()
	}
	if remaining := record.Release.Sub(now); remaining > 0 {
		return r.Buckets.Pick(remaining).Topic, m, ""
	}
	return r.Replay, m, ""
}

func unreadable(l Letter, err error) string {
	if l.Cause == "corrupt" {
		return "nothing of it is known but its offsets"
	}
	if cut := l.cut(); cut != "" {
		return cut + ", and what is left is no record: " + err.Error()
	}
	return "it is no record: " + err.Error()
}
