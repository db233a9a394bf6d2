package orderclose

import (
	"errors"
	"time"
)

// Verdict is the result of closing one order.
type Verdict string

const (
	Closed         Verdict = "closed"          // the order was unpaid and due, and is closed now
	AlreadyPaid    Verdict = "already_paid"    // the order was paid before
	AlreadyClosed  Verdict = "already_closed"  // the order was closed or cancelled before; duplicates end here
	NotDue         Verdict = "not_due"         // the due time in the database is still ahead
	PaymentPending Verdict = "payment_pending" // the payment provider cannot answer yet
	NotFound       Verdict = "not_found"       // the database has no such order
	Contended      Verdict = "contended"       // another transaction locks the row of the order or its stock; retry later
	Failed         Verdict = "failed"          // the order cannot be closed; Outcome.Err has the cause
)

// Path is how an order came to be closed.
type Path string

const (
	PathPipeline Path = "pipeline" // its record went through the delay topics
	PathSweep    Path = "sweep"    // the compensator found it
	PathTouch    Path = "touch"    // a request read or paid the order after its due time
)

// CloseRequest asks to close one order if it is unpaid and due.
type CloseRequest struct {
	OrderID string
	Attempt int // failed attempts before this one; 0 for the first
	// CreatedAt and Due come from the order's record and are zero if unknown. They
	// tell a service which order is meant, and they select the table to search first
	// if orders are kept in monthly tables; zero searches all tables. The database
	// decides by its own due time.
	CreatedAt, Due time.Time
}

// Outcome is the result of one CloseRequest.
type Outcome struct {
	OrderID string
	Verdict Verdict
	Due     time.Time // the due time in the database; zero if NotFound
	At      time.Time // the database's clock at the decision
	Err     error     // the cause if the verdict is Failed or Contended
}

// Remaining returns how long before its due time the order was, by the database's
// clock. It is negative if the order was late.
func (o Outcome) Remaining() time.Duration { return o.Due.Sub(o.At) }

// ErrUnavailable means that the database, or the service that does the closing,
// failed and no order did: it is unreachable, read-only, full or overloaded. Retry
// the same orders later.
var ErrUnavailable = errors.New("the store is unavailable")

// ErrStoreDown is wrapped beside ErrUnavailable if the store is certain that no order
// is at fault: its connection was refused or lost, or it accepts no writes. Without
// ErrStoreDown, an order that gets ErrUnavailable alone again and again, while others
// are closed, has failed.
var ErrStoreDown = errors.New("no order is at fault")

// ErrContended means that another transaction locked the row of an order of the
// batch, or of its stock, for too long. The other orders can be closed without it,
// and it can be closed later.
var ErrContended = errors.New("another transaction holds a row")
