package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

// Event is something that happened to the order, or will happen.
type Event struct {
	At    time.Time `json:"at"`
	Where string    `json:"where"` // database, or topic/partition/offset
	What  Sentence  `json:"what"`
}

// database is the value of Where for events from the tables.
const database = "database"

// timeline merges the events of the database and of the topics, sorted by time. Events of the same millisecond are in the order in which the pipeline
// causes them. The clocks of the database and of the brokers may differ a little.
func timeline(db *store.OrderHistory, topics []HistoryTopic) []Event {
	all := []Event{}
	add := func(at time.Time, where string, what ...Phrase) {
		if !at.IsZero() {
			all = append(all, Event{at.UTC(), where, what})
		}
	}
	if db != nil && db.Order != nil {
		created := []Phrase{say("created, to be closed at %s if it is not paid", db.Order.Due)}
		if db.Order.Category != "" {
			created = append(created, say("category %s", db.Order.Category))
		}
		add(db.Order.CreatedAt, database, created...)
		if !orderclose.IsNever(db.Order.Due) {
			add(db.Order.Due, database, say("due"))
		}
	}
	for _, p := range topics {
		if !p.afterClosing() {
			p.addRecords(add)
		}
	}
	if db != nil {
		addDatabase(db, eventSent(db, topics), add)
	}
	for _, p := range topics {
		if p.afterClosing() {
			p.addRecords(add)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all
}

// addDatabase adds the events after the creation of the order. sent says that the event of its close is no longer in the outbox.
func addDatabase(db *store.OrderHistory, sent bool, add func(at time.Time, where string, what ...Phrase)) {
	if o := db.Order; o != nil {
		if !o.PaidAt.IsZero() {
			add(o.PaidAt, database, say("paid"))
		}
		// A shop may fill the column for other reasons, so its time is no close of an unpaid or paid order.
		if closed := o.Meaning == "" || strings.HasSuffix(o.Meaning, "closed"); !o.ClosedAt.IsZero() && db.Receipt == nil && closed {
			add(o.ClosedAt, database, say("closed, without a receipt"))
		}
	}
	if r := db.Receipt; r != nil {
		closed := []Phrase{say("closed by %s, %s after it was due", r.Path, time.Duration(r.LatenessMS)*time.Millisecond)}
		if o := db.Order; o != nil && o.Due.After(r.ClosedAt) && o.Due.After(r.Due) {
			closed = append(closed, say("by its row it is due only %s", o.Due))
		}
		if r.Attempts > 0 {
			closed = append(closed, say("after %d failed attempts", r.Attempts))
		}
		if sent {
			closed = append(closed, say("its event has left the outbox"))
		}
		add(r.ClosedAt, database, closed...)
	}
	for _, l := range db.Ledger {
		add(l.At, database, ledger(l))
	}
	for _, p := range db.LatePayments {
		add(p.FoundAt, database, say("late payment %d found by %s: %s", p.ID, p.Source, strings.TrimSpace(cmp.Or(p.PaymentID, "-")+" "+p.Money())))
		add(p.ResolvedAt, database, say("late payment %d %s by %s", p.ID, p.Resolution, p.ResolvedBy))
	}
	for _, o := range db.PendingSchedules {
		add(o.At, database, say("schedule %d written, and still in the outbox", o.ID))
	}
	for _, o := range db.PendingEvents {
		add(o.At, database, pendingEvent(o)...)
	}
}

// pendingEvent says where an event waits that is not published or delivered yet.
func pendingEvent(o store.PendingRow) []Phrase {
	name := cmp.Or(o.Type, strconv.FormatInt(o.ID, 10))
	switch {
	case !o.Webhook:
		return []Phrase{say("event %s written, and still in the outbox", name)}
	case o.Error != "":
		return []Phrase{say("event %s waits until the receiver of the webhook accepts it", name),
			say("sent %d times; it was not accepted, because %s", o.Attempts, o.Error)}
	}
	return []Phrase{say("event %s waits until the receiver of the webhook accepts it", name)}
}

// eventSent reports whether the event of a close has left the outbox, and no topic that was read shows it: the receiver of the webhook has
// accepted it, or it was published before the part of the topic that was read.
func eventSent(db *store.OrderHistory, topics []HistoryTopic) bool {
	return len(db.PendingEvents) == 0 &&
		!slices.ContainsFunc(topics, func(t HistoryTopic) bool { return t.Kind == KindEvents && len(t.Records) > 0 })
}

func ledger(l store.LedgerRow) Phrase {
	switch l.Kind {
	case "ship":
		return say("stock: quantity %d of SKU %s left (%s)", l.Quantity, l.SKU, l.Kind)
	case "release":
		return say("stock: the event says to give back quantity %d of SKU %s", l.Quantity, l.SKU)
	}
	return say("stock: quantity %d of SKU %s came back (%s)", l.Quantity, l.SKU, l.Kind)
}

// addRecords adds the records of a topic.
func (p HistoryTopic) addRecords(add func(at time.Time, where string, what ...Phrase)) {
	for _, r := range p.Records {
		add(r.Appended, fmt.Sprintf("%s/%d/%d", p.Topic, r.Partition, r.Offset), r.what(p.Kind)...)
	}
}

// what describes a record in words.
func (r Record) what(kind TopicKind) Sentence {
	switch {
	case r.Event != "":
		return Sentence{say("event %s published", r.Event)}
	case r.Dead != nil:
		return Sentence{say("given up by %s: %s: %s", r.Dead.Stage, r.Dead.Cause, r.Dead.Detail),
			say("from %s/%d/%d", r.Dead.Source.Topic, r.Dead.Source.Partition, r.Dead.Source.Offset)}
	}
	var states Sentence
	switch {
	case kind == KindBucket:
		states = append(states, say("put into a bucket"))
	case r.Lane != "":
		states = append(states, say("handed to the closer again"))
	default:
		states = append(states, say("handed to the closer"))
	}
	if !r.Leaves.IsZero() {
		states = append(states, say("to leave at %s", r.Leaves))
	}
	if r.Attempt > 0 {
		states = append(states, say("after %d failed attempts (%s)", r.Attempt, r.Cause))
	} else if r.Cause != "" {
		states = append(states, say("waits (%s)", r.Cause))
	}
	if r.NotDue > 0 {
		states = append(states, say("came %d times before it was due", r.NotDue))
	}
	if r.Lane != "" {
		states = append(states, say("lane %s", r.Lane))
	}
	if r.Problem != "" {
		states = append(states, say("cannot be read: %s", r.Problem))
	}
	if r.Waits {
		states = append(states, say("not committed yet"))
	}
	return states
}
