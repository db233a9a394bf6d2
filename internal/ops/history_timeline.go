package ops

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store"
)

// Event is something that happened to the order, or will happen.
type Event struct {
	At    time.Time `json:"at"`
	Where string    `json:"where"` // database, or topic/partition/offset
	What  string    `json:"what"`
}

// database is the value of Where for events from the tables.
const database = "database"

// timeline merges the events of the database and of the topics, sorted by time. Events of the same
// millisecond are in the order in which the pipeline causes them. The clocks of the database and
// of the brokers may differ a little.
func timeline(db *store.OrderHistory, topics []HistoryTopic) []Event {
	all := []Event{}
	add := func(at time.Time, where, format string, args ...any) {
		if !at.IsZero() {
			all = append(all, Event{at.UTC(), where, fmt.Sprintf(format, args...)})
		}
	}
	if db != nil && db.Order != nil {
		add(db.Order.CreatedAt, database, "created%s, to be closed at %s if it is not paid", category(db.Order.Category), clock(db.Order.Due))
		add(db.Order.Due, database, "due")
	}
	for _, p := range topics {
		if !p.afterClosing() {
			p.addRecords(add)
		}
	}
	if db != nil {
		addDatabase(db, add)
	}
	for _, p := range topics {
		if p.afterClosing() {
			p.addRecords(add)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all
}

func category(name string) string {
	if name == "" {
		return ""
	}
	return " with category " + name
}

// addDatabase adds the events after the creation of the order.
func addDatabase(db *store.OrderHistory, add func(at time.Time, where, format string, args ...any)) {
	if o := db.Order; o != nil {
		if o.PaidAt != nil {
			add(*o.PaidAt, database, "paid")
		}
		if o.ClosedAt != nil && db.Receipt == nil {
			add(*o.ClosedAt, database, "closed, without a receipt")
		}
	}
	if r := db.Receipt; r != nil {
		tries := ""
		if r.Attempts > 0 {
			tries = fmt.Sprintf(", after %d failed attempts", r.Attempts)
		}
		add(r.ClosedAt, database, "closed by %s, %d ms after it was due%s", r.Path, r.LatenessMS, tries)
	}
	for _, l := range db.Ledger {
		add(l.At, database, "%s", ledger(l))
	}
	for _, o := range db.PendingSchedules {
		add(o.At, database, "schedule %d written, and still in the outbox", o.ID)
	}
	for _, o := range db.PendingEvents {
		add(o.At, database, "event %d written, and still in the outbox", o.ID)
	}
}

func ledger(l store.LedgerRow) string {
	if l.Kind == "ship" {
		return fmt.Sprintf("stock: %d of %s left (%s)", l.Quantity, l.SKU, l.Kind)
	}
	return fmt.Sprintf("stock: %d of %s came back (%s)", l.Quantity, l.SKU, l.Kind)
}

// addRecords adds the records of a topic.
func (p HistoryTopic) addRecords(add func(at time.Time, where, format string, args ...any)) {
	for _, r := range p.Records {
		add(r.Appended, fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, r.Offset), "%s", r.what(p.Kind))
	}
}

// what describes a record in words.
func (r Record) what(kind TopicKind) string {
	switch {
	case r.Event != "":
		return "event " + r.Event + " published"
	case r.Settles != nil:
		return fmt.Sprintf("its dead letter %d/%d was %s", r.Settles.Partition, r.Settles.Offset, r.Settles.How)
	case r.Dead != nil:
		return fmt.Sprintf("given up by %s: %s: %s; from %s/%d/%d",
			r.Dead.Stage, r.Dead.Cause, r.Dead.Detail, r.Dead.Source.Topic, r.Dead.Source.Partition, r.Dead.Source.Offset)
	}
	var states []string
	switch kind {
	case KindBucket:
		states = append(states, "put into a bucket")
	case KindReplay:
		states = append(states, "handed to the closer again")
	default:
		states = append(states, "handed to the closer")
	}
	if r.Leaves != nil {
		states = append(states, "to leave at "+clock(*r.Leaves))
	}
	if r.Attempt > 0 {
		states = append(states, fmt.Sprintf("after %d failed attempts (%s)", r.Attempt, r.Cause))
	} else if r.Cause != "" {
		states = append(states, "postponed ("+r.Cause+")")
	}
	if r.NotDue > 0 {
		states = append(states, fmt.Sprintf("came %d times before it was due", r.NotDue))
	}
	if r.Lane != "" {
		states = append(states, "lane "+r.Lane)
	}
	if r.Problem != "" {
		states = append(states, "cannot be read: "+r.Problem)
	}
	if r.Waits {
		states = append(states, "not committed yet")
	}
	return strings.Join(states, ", ")
}
