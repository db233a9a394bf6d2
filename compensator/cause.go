package compensator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/orderclose/orderclose"
)

// Cause is why the pipeline missed an order that a sweep found.
type Cause string

// The causes. A cause is looked up after the order was closed and does not affect the
// close.
const (
	Unpublished  Cause = "unpublished"   // its row was in the schedule outbox when the sweep began
	RelayBehind  Cause = "relay_behind"  // its record is overdue in a delay topic
	CloserBehind Cause = "closer_behind" // its record is in the close topic and not committed
	LaterRelease Cause = "later_release" // its record leaves a delay topic later: the due time was moved to an earlier time
	Retrying     Cause = "retrying"      // a close failed, and the record waits for its retry
	DeadLettered Cause = "dead_lettered" // its record was given up and is a pending dead letter
	Absent       Cause = "absent"        // no record of it is in the pipeline: never published, or lost
	Unknown      Cause = "unknown"       // the lookup did not get far enough: the budget was spent, or Kafka was unavailable
)

// Causes returns all causes, in the order in which an order passes through the
// pipeline.
func Causes() []Cause {
	return []Cause{Unpublished, RelayBehind, CloserBehind, LaterRelease, Retrying, DeadLettered, Absent, Unknown}
}

// Miss is an order that a sweep closed, and why the pipeline had missed it.
type Miss struct {
	Order orderclose.Order
	Cause Cause
	Where string // topic/partition@offset of the evidence, or why the cause is unknown
	Fix   string // command that fixes the cause, or shows more
}

// missJSON is the JSON form of a Miss in a report. The order has the field names of
// records.
type missJSON struct {
	OrderID   string    `json:"order_id"`
	Category  string    `json:"category,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	Due       time.Time `json:"due_at"`
	Cause     Cause     `json:"cause"`
	Where     string    `json:"where,omitempty"`
	Fix       string    `json:"fix"`
}

// MarshalJSON implements json.Marshaler.
func (m Miss) MarshalJSON() ([]byte, error) {
	o := m.Order
	return json.Marshal(missJSON{o.ID, o.Category, o.CreatedAt, o.Due, m.Cause, m.Where, m.Fix})
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Miss) UnmarshalJSON(b []byte) error {
	var j missJSON
	err := json.Unmarshal(b, &j)
	*m = Miss{orderclose.Order{ID: j.OrderID, Category: j.Category, CreatedAt: j.CreatedAt, Due: j.Due}, j.Cause, j.Where, j.Fix}
	return err
}

// Investigator finds out why the pipeline missed orders.
type Investigator interface {
	// Begin is called when a sweep begins, before the first page is closed.
	Begin(ctx context.Context) (Investigation, error)
}

// Investigation looks up the causes for one sweep. It belongs to the goroutine of the
// sweep.
type Investigation interface {
	// Explain is called after a page was closed, with the orders of the page that
	// this sweep closed. It returns one Miss for each, in the same order. It does not
	// fail: a cause that it cannot find is Unknown.
	Explain(ctx context.Context, missed []orderclose.Order) []Miss
}
