package compensator

import (
	"context"
	"encoding/json"
	"time"

	"orderclose"
)

// Cause is why the pipeline missed an order that a sweep found.
type Cause string

// The causes. Each is looked for after the order was closed, and changes nothing
// about it.
const (
	Unpublished  Cause = "unpublished"   // its row stood in the schedule outbox when the sweep began
	RelayBehind  Cause = "relay_behind"  // its record should have left a delay topic, and has not
	CloserBehind Cause = "closer_behind" // its record is in the close topic, and nobody has committed it
	LaterRelease Cause = "later_release" // its record leaves a delay topic later: its due time was moved earlier
	Retrying     Cause = "retrying"      // closing it failed, and its record waits for the next try
	DeadLettered Cause = "dead_lettered" // its record was given up and is a pending dead letter
	Absent       Cause = "absent"        // no record of it is on its way: never published, or lost
	Unknown      Cause = "unknown"       // it was not looked for far enough: the budget was spent, or there was no Kafka to ask
)

// Causes are all of them, in the order of an order's way.
func Causes() []Cause {
	return []Cause{Unpublished, RelayBehind, CloserBehind, LaterRelease, Retrying, DeadLettered, Absent, Unknown}
}

// Miss is an order that a sweep has closed, and why the pipeline had not.
type Miss struct {
	Order orderclose.Order
	Cause Cause
	Where string // topic/partition@offset of what tells; or why the cause is unknown
	Mend  string // the command that mends it, or shows more
}

// missJSON is the form of a Miss in a report: the order as records write it.
type missJSON struct {
	OrderID   string    `json:"order_id"`
	Category  string    `json:"category,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	Due       time.Time `json:"due_at"`
	Cause     Cause     `json:"cause"`
	Where     string    `json:"where,omitempty"`
	Mend      string    `json:"mend"`
}

// MarshalJSON implements json.Marshaler.
func (m Miss) MarshalJSON() ([]byte, error) {
	o := m.Order
	return json.Marshal(missJSON{o.ID, o.Category, o.CreatedAt, o.Due, m.Cause, m.Where, m.Mend})
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Miss) UnmarshalJSON(b []byte) error {
	var j missJSON
	err := json.Unmarshal(b, &j)
	*m = Miss{orderclose.Order{ID: j.OrderID, Category: j.Category, CreatedAt: j.CreatedAt, Due: j.Due}, j.Cause, j.Where, j.Mend}
	return err
}

// Investigator finds out why the pipeline missed what a sweep finds.
type Investigator interface {
	// Begin is called when a sweep begins, before the first page is closed.
	Begin(ctx context.Context) (Investigation, error)
}

// Investigation is one sweep's. It belongs to the goroutine of the sweep.
type Investigation interface {
	// Explain is called after a page was closed, with the orders of it that this
	// sweep has closed, and returns one Miss for each, in their order. It never
	// fails: what it cannot find out is Unknown.
	Explain(ctx context.Context, missed []orderclose.Order) []Miss
}
