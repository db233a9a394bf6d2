package orderclose

import (
	"errors"
	"time"
)

// Verdict is what closing said of one order.
type Verdict string

const (
	Closed         Verdict = "closed"          // it was unpaid and due, and is closed now
	AlreadyPaid    Verdict = "already_paid"    // it was paid first
	AlreadyClosed  Verdict = "already_closed"  // it was closed or cancelled before; repeats end here
	NotDue         Verdict = "not_due"         // its due time, by the database, still lies ahead
	PaymentPending Verdict = "payment_pending" // the payment provider cannot say yet
	NotFound       Verdict = "not_found"       // the database has no such order
	Contended      Verdict = "contended"       // somebody else holds its row, or its stock's, for long; try again
	Failed         Verdict = "failed"          // this order cannot be closed; Outcome.Err says why
)

// Path says which way an order came to its close.
type Path string

const (
	PathPipeline Path = "pipeline" // its record came through the delay topics
	PathSweep    Path = "sweep"    // the compensator found it
	PathTouch    Path = "touch"    // somebody read or paid it past due
)

// CloseRequest asks for one order to be closed if it is unpaid and due.
type CloseRequest struct {
	OrderID string
	Attempt int // how often closing it failed before; 0 on the first try
	// CreatedAt and Due, as far as they are known from its record, tell a service
	// which order is meant, and say in which table to look where orders are in a
	// table for each month; zero: in all of them. In the database they decide nothing.
	CreatedAt, Due time.Time
}

// Outcome is the answer to one CloseRequest.
type Outcome struct {
	OrderID string
	Verdict Verdict
	Due     time.Time // the order's due time in the database; zero if NotFound
	At      time.Time // the database's clock when it decided
	Err     error     // the cause, when the verdict is Failed or Contended
}

// Remaining is how long the order still had, by the database's clock. Negative:
// by how much it was late.
func (o Outcome) Remaining() time.Duration { return o.Due.Sub(o.At) }

// ErrUnavailable marks a failure that is the database's (or whatever else does
// the closing), not an order's: it cannot be reached, is read-only, full or
// overloaded. No order is to blame; try the same again later.
var ErrUnavailable = errors.New("the store is unavailable")

// ErrStoreDown comes with ErrUnavailable if the store is certain that no order is at
// fault: its connection was refused or lost, or it takes no writes. Without it, an order
// that alone gets ErrUnavailable again and again, while others are closed, has failed.
var ErrStoreDown = errors.New("no order is at fault")

// ErrContended marks a failure of a batch in which some order's row, or its
// stock's, was held by another transaction for too long. The others can succeed
// without it; it can later.
var ErrContended = errors.New("another transaction holds a row")
