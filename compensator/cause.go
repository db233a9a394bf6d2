package compensator

import (
	"context"

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
	orderclose.Order
	Cause Cause  `json:"cause"`
	Where string `json:"where,omitempty"` // topic/partition@offset of the evidence, or why the cause is unknown
	Fix   string `json:"fix"`             // command that fixes the cause, or shows more
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
