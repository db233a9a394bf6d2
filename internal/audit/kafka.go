package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/deadletters"
	"orderclose/internal/kafka"
	"orderclose/internal/store"
	"orderclose/internal/story"
)

const (
	// slack is how long before the window begins what belongs to it may have been
	// appended: clocks differ.
	slack = time.Minute
	// settling is how long before the audit began a close must have been for its event
	// to be asked for: a commit takes a moment.
	settling = time.Minute
	// maxLetters bounds how many dead letters are known by their order.
	maxLetters = 100_000
	// outboxOfEvents is the source of dead letters that the dispatcher makes of events.
	outboxOfEvents = "outbox_events"
)

// Log is what an audit reads of Kafka; internal/kafka's Cluster is one.
type Log interface {
	deadletters.Log
	story.Log
}

// told is what Kafka and the outbox tell.
type told struct {
	events     *hashes // ids; nil: they are not known
	eventsFrom time.Time
	eventsTo   time.Time

	records     *hashes // ids of orders whose record reached the close topic; nil: not known
	recordsFrom time.Time

	letters      map[string]string // pending ones, by order
	eventLetters map[string]string // those of events that were never published
}

// listen reads the outbox, and then the topics: what leaves the one in between is in
// the other.
func (a *audit) listen(ctx context.Context) error {
	a.told.letters, a.told.eventLetters = map[string]string{}, map[string]string{}
	if a.o.Log == nil {
		return nil
	}
	unseen := func(what string, err error) {
		if err != nil {
			a.sum.Unseen = append(a.sum.Unseen, fmt.Sprintf("%s: %v", what, err))
		}
	}
	if a.o.Receipts {
		events := newHashes()
		if err := a.o.Store.Outgoing(ctx, func(id string) { events.add(a.eventID(id)) }); err != nil {
			return err
		}
		from, n, err := a.read(ctx, a.o.EventsTopic, func(r orderclose.RawRecord) {
			m, err := r.Message()
			if err != nil {
				return
			}
			// Of an event of another type only the id is known, which is another one too.
			if id, _, err := orderclose.DecodeClosed(m.Value, a.rules.Event); err == nil || errors.Is(err, orderclose.ErrOtherEvent) {
				events.add(id)
			}
		})
		unseen(a.o.EventsTopic, err)
		if a.sum.EventsRead = n; err == nil {
			events.seal()
			a.told.events, a.told.eventsFrom, a.told.eventsTo = events, from, a.sum.At.Add(-settling)
		}
	}
	records := newHashes()
	whole := true
	for _, topic := range []string{a.o.CloseTopic, a.o.ReplayTopic} {
		from, n, err := a.read(ctx, topic, func(r orderclose.RawRecord) { records.add(string(r.Key())) })
		unseen(topic, err)
		whole = whole && err == nil
		a.sum.RecordsRead += n
		a.told.recordsFrom = later(a.told.recordsFrom, from)
	}
	if records.seal(); whole {
		a.told.records = records
	}
	unseen(a.o.DeadLetterTopic, a.readLetters(ctx))
	return ctx.Err()
}

func (a *audit) eventID(orderID string) string {
	return orderclose.OrderClosed{Type: a.rules.Event, OrderID: orderID}.ID()
}

// read reads a topic from the beginning of the window to its present end. since is
// when what is there begins, if that is later than the window; n is how many
// offsets it read.
func (a *audit) read(ctx context.Context, topic string, each func(orderclose.RawRecord)) (since time.Time, n int64, err error) {
	partitions, err := a.o.Log.Partitions(ctx, topic)
	if err != nil {
		return since, 0, err
	}
	for p := range partitions {
		first, end, err := a.o.Log.Bounds(ctx, topic, p)
		if err != nil {
			return since, n, err
		}
		from, err := a.o.Log.OffsetAt(ctx, topic, p, a.o.From.Add(-slack))
		if err != nil {
			return since, n, err
		}
		from = max(from, first)
		cut := first > 0 && from == first // retention may have deleted some of the window
		if cut && first == end {
			since = later(since, a.sum.At)
		}
		read, err := story.Scan(ctx, a.o.Log, topic, kafka.Span{Partition: p, First: from, End: end}, func(r orderclose.RawRecord) {
			if cut {
				since, cut = later(since, r.AppendedAt().Add(slack)), false
			}
			each(r)
			if n++; n%10_000 == 0 {
				a.progress(topic)
			}
		})
		if err == nil && read < end {
			err = fmt.Errorf("%s/%d was read to %d of %d", topic, p, read, end)
		}
		if err != nil {
			return since, n, err
		}
	}
	return since, n, nil
}

// readLetters notes the pending dead letters.
func (a *audit) readLetters(ctx context.Context) error {
	topic := deadletters.Topic{Log: a.o.Log, Name: a.o.DeadLetterTopic}
	spans, err := topic.Snapshot(ctx, deadletters.Filter{})
	if err != nil {
		return err
	}
	index, err := topic.Index(ctx, spans, deadletters.Filter{})
	if err != nil {
		return err
	}
	for _, n := range index.Pending() {
		a.sum.DeadLettersAll += n
	}
	if a.sum.DeadLettersAll == 0 {
		return nil
	}
	return topic.Letters(ctx, spans, index, func(letters []deadletters.Letter) error {
		for _, l := range letters {
			switch known := len(a.told.letters)+len(a.told.eventLetters) < maxLetters; {
			case l.Settle != "" || l.Source.Topic == a.o.EventsTopic || !known:
			case l.Source.Topic == outboxOfEvents:
				a.told.eventLetters[l.Key] = l.At.String()
			default:
				a.told.letters[l.Key] = l.At.String()
			}
		}
		return nil
	})
}

// facts are what an order is judged by.
func (a *audit) facts(r store.AuditRow) facts {
	f := facts{
		rules: a.rules, receipts: a.o.Receipts, now: a.sum.At, bound: a.o.Bound,
		letter: a.told.letters[r.ID], eventLetter: a.told.eventLetters[r.ID],
	}
	if a.told.events != nil {
		f.eventsFrom, f.eventsTo = a.told.eventsFrom, a.told.eventsTo
		f.event = r.Receipt != nil && a.told.events.has(a.eventID(r.ID))
	}
	return f
}

// seen says whether an order's record reached the close topic; known is false if
// that cannot be told.
func (t *told) seen(r store.AuditRow) (seen, known bool) {
	if t.records == nil || r.Due.Before(t.recordsFrom) {
		return false, false
	}
	return t.records.has(r.ID), true
}
