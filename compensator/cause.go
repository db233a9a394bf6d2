package compensator

import (
	"context"

	"orderclose"
)

// Cause is why the pipeline missed an order.
type Cause string

// Unknown is the cause of a miss that nobody looked into.
const Unknown Cause = "unknown"

// Miss is an order that a sweep closed, and why the pipeline had not.
type Miss struct {
	Order orderclose.Order
	Cause Cause
	Where string // topic, partition and offset, or the outbox's row; may be empty
	Mend  string // the command that mends it; may be empty
}

// Investigator finds out why the pipeline missed orders. Begin is called when a
// sweep begins, before it closes anything.
type Investigator interface {
	Begin(ctx context.Context) (Investigation, error)
}

// Investigation is that of one sweep. Explain is called after each page, with the
// orders that the sweep has just closed. It never fails: what it cannot tell is
// Unknown.
type Investigation interface {
	Explain(ctx context.Context, missed []orderclose.Order) []Miss
}
