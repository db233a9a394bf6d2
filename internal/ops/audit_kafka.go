package ops

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// auditSlack is how long before the window a record may have been appended that belongs to an order of the window, since clocks differ.
	auditSlack = time.Minute
	// settling is how long before the audit an order must have been closed for its event to be required: a commit takes a moment.
	settling = time.Minute
	// recheckSlack is how late a question about a closed order may be: a look each minute, and the take-over of a killed process.
	recheckSlack = 3 * time.Minute
)

// kafkaState is what Kafka and the outbox contain.
type kafkaState struct {
	events *hashes // ids of events; nil: not known

	letters      map[string]string // positions of dead letters, by order
	eventLetters map[string]string // the same for events that were never published
}

// readKafka reads the outbox before the topics: an event that leaves the outbox meanwhile is found in its topic.
func (a *audit) readKafka(ctx context.Context) error {
	a.kafka.letters, a.kafka.eventLetters = map[string]string{}, map[string]string{}
	if a.o.Log == nil {
		return nil
	}
	topics := a.o.Config.Topics
	notRead := func(what string, err error) {
		if err != nil {
			a.sum.NotRead = append(a.sum.NotRead, fmt.Sprintf("%s: %v", what, err))
		}
	}
	if a.common.receipts && !a.o.EventsTaken {
		events := newHashes()
		if err := a.o.Store.PendingEvents(ctx, func(id string) { events.add(a.eventID(id)) }); err != nil {
			return err
		}
		from, n, err := a.read(ctx, topics.Events, func(r wire.RawRecord) {
			m, err := r.Message()
			if err != nil {
				return
			}
			// The id of an event contains its type, so the id of another type matches no order.
			if id, _, err := orderclose.DecodeClosed(m.Value, a.common.rules.Event); err == nil || errors.Is(err, orderclose.ErrOtherEvent) {
				events.add(id)
			}
		})
		notRead(topics.Events, err)
		if a.sum.EventsRead = n; err == nil {
			events.seal()
			a.kafka.events, a.common.eventsFrom, a.common.eventsTo = events, later(from, a.o.From), a.sum.At.Add(-settling)
		}
	}
	notRead(topics.DeadLetter, a.readLetters(ctx))
	return ctx.Err()
}

func (a *audit) eventID(orderID string) string {
	return orderclose.OrderClosed{Type: a.common.rules.Event, OrderID: orderID}.ID()
}

// read passes the records of a topic to each, from the beginning of the window to the present end. since is the time from which the topic is complete,
// if that is later than the window. n is how many records were read.
func (a *audit) read(ctx context.Context, topic string, each func(wire.RawRecord)) (since time.Time, n int64, err error) {
	partitions, err := a.o.Log.Partitions(ctx, topic)
	if err != nil {
		return since, 0, err
	}
	queries := kafka.OffsetQueries(topic, partitions, kafka.LogStart, kafka.LogEnd, kafka.MomentOf(a.o.From.Add(-auditSlack)))
	for p, bounds := range a.o.Log.Offsets(ctx, queries) {
		if bounds.Err != nil {
			return since, n, bounds.Err
		}
		first, end, from := bounds.Offsets[0], bounds.Offsets[1], max(bounds.Offsets[0], bounds.Offsets[2])
		cut := first > 0 && from == first // retention may have deleted a part of the window
		if cut && first == end {
			since = later(since, a.sum.At)
		}
		read, err := ScanRecords(ctx, a.o.Log, topic, reads.Span{Partition: p, First: from, End: end}, func(r wire.RawRecord) {
			if cut {
				since, cut = later(since, r.AppendedAt().Add(auditSlack)), false
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

// readLetters reads the newest 100,000 dead letters: the orders of others are checked as if they had none.
func (a *audit) readLetters(ctx context.Context) error {
	topic := deadletters.Topic{Log: a.o.Log, Name: a.o.Config.Topics.DeadLetter}
	list, err := topic.List(ctx, deadletters.Filter{}, deadletters.MaxLetters)
	if err != nil {
		return err
	}
	a.sum.DeadLettersAll = len(list.Letters)
	for _, l := range slices.Backward(list.Letters) {
		switch l.Source.Topic {
		case a.o.Config.Topics.Events:
		case deadletters.OutboxOfEvents:
			a.kafka.eventLetters[l.Key] = l.At.String()
		default:
			a.kafka.letters[l.Key] = l.At.String()
		}
	}
	return nil
}

// facts returns the facts that an order is judged by.
func (a *audit) facts(r store.AuditRow) facts {
	f := a.common
	f.letter, f.eventLetter = a.kafka.letters[r.ID], a.kafka.eventLetters[r.ID]
	event := a.kafka.events != nil && a.kafka.events.has(a.eventID(r.ID))
	f.event, f.strayEvent = event && r.Receipt != nil, event && r.Receipt == nil
	return f
}

// hashes is a set of strings that keeps 8 bytes of each: call add for all, then seal, then has. has is wrong for at least one of n strings that are not
// in a set of m with a probability of n × m / 2^64: for a million of each, one in 18 million.
type hashes struct {
	seed maphash.Seed
	all  []uint64
}

func newHashes() *hashes { return &hashes{seed: maphash.MakeSeed()} }

func (h *hashes) add(text string) { h.all = append(h.all, maphash.String(h.seed, text)) }

// seal must be called after the last add and before the first has.
func (h *hashes) seal() {
	slices.Sort(h.all)
	h.all = slices.Compact(h.all)
}

func (h *hashes) has(text string) bool {
	_, found := slices.BinarySearch(h.all, maphash.String(h.seed, text))
	return found
}
