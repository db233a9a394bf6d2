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
	PaymentPending Verdict = "payment_pending" // the payment provider does not know yet whether the order is paid
	Excluded       Verdict = "excluded"        // the configuration excludes the order: a close leaves it as it is
	Paused         Verdict = "paused"          // the orders of its category are paused; retry later
	NotFound       Verdict = "not_found"       // the database has no such order
	Contended      Verdict = "contended"       // another transaction locks the row of the order or its stock; retry later
	Failed         Verdict = "failed"          // the order cannot be closed; Outcome.Cause and Err say why
)

// Verdicts returns all verdicts.
func Verdicts() []Verdict {
	return []Verdict{Closed, AlreadyPaid, AlreadyClosed, NotDue, PaymentPending, Excluded, Paused, NotFound, Contended, Failed}
}

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
	// Category is the order's category for metrics, "" if it has none or it is unknown.
	Category string
	// Traceparent is the W3C trace context of the close, "" if it is not traced. The event of the close
	// carries it.
	Traceparent string
}

// Outcome is the result of one CloseRequest.
type Outcome struct {
	OrderID string
	Verdict Verdict
	Due     time.Time // the due time in the database; zero if NotFound
	At      time.Time // the database's clock at the decision
	Err     error     // what failed if the verdict is Failed or Contended, or Paused by an operator; then it wraps ErrPaused
	// Cause is why the order stays open, if the Store knows more than the verdict says; see Why.
	Cause FailureCause
}

// Remaining returns the time from At to Due: how long the order had left at the decision.
// It is negative if the order was overdue. It means nothing if Due is zero.
func (o Outcome) Remaining() time.Duration { return o.Due.Sub(o.At) }

// ErrUnavailable means that the database, or the service that closes orders, does not
// work now: it is unreachable, read-only, full or overloaded. Retry the same orders later.
// ErrUnavailable alone does not clear the orders: one of them may make the store hang.
var ErrUnavailable = errors.New("the store is unavailable")

// ErrNoOrderAtFault is wrapped beside ErrUnavailable if it is certain that no order is at
// fault: the connection was refused or lost, or the database accepts no writes. Without
// ErrNoOrderAtFault, an order has failed if it gets ErrUnavailable several times when it is
// closed alone, while other orders are closed.
var ErrNoOrderAtFault = errors.New("no order is at fault")

// ErrPaused is wrapped beside ErrUnavailable and ErrNoOrderAtFault while an operator has paused the
// closes of all orders.
var ErrPaused = errors.New("closing is paused")

// ErrContended means that the transaction lost a conflict with another one, such as a deadlock: roll back, and run the transaction again.
// The other transaction locked a row for too long, or it has changed a row since this one read it, which MariaDB 11.6 and newer refuse at REPEATABLE READ
// with error 1020. Of a close it means the row of an order of the batch, or of its stock: the other orders can be closed without that
// order. That order can be closed later.
var ErrContended = errors.New("another transaction holds or has changed a row")
