package orderclose

import (
	"errors"
	"strings"
)

// FailureCause is why an order stays open, in one word. A text has it before a colon. The section "An order cannot be closed" of
// docs/runbook.md has a remedy for each.
type FailureCause string

// The causes.
const (
	StockRowMissing  FailureCause = "stock_row_missing"   // a SKU of the order has no row in the table of stock
	ReservedTooLow   FailureCause = "reserved_too_low"    // less is reserved of a SKU than the order holds
	ValueNull        FailureCause = "value_null"          // a column that the close reads or writes is NULL
	NumberOutOfRange FailureCause = "number_out_of_range" // a number does not fit into its column
	LinesWrong       FailureCause = "lines_wrong"         // a line has a quantity, a location or an order id that cannot be used
	NoDueTime        FailureCause = "no_due_time"         // the due time is 0 or the zero date
	ClosedBefore     FailureCause = "closed_before"       // the order has the receipt of a close
	RowNotFound      FailureCause = "row_not_found"       // the database or the service has no such order
	Locked           FailureCause = "locked"              // another transaction holds the order, a line or its stock
	PaymentUnknown   FailureCause = "payment_pending"     // the payment provider has no answer yet
	RefusedByTrigger FailureCause = "refused_by_trigger"  // a trigger raises an error, or keeps the status
	RefusedByServer  FailureCause = "refused_by_server"   // the server refuses a statement, such as by a constraint
	NoAnswer         FailureCause = "no_answer"           // the store gave no answer on this order in time, and gave answers on others
	Unexplained      FailureCause = "unexplained"         // any other error
)

// FailureCauses returns all causes.
func FailureCauses() []FailureCause {
	return []FailureCause{StockRowMissing, ReservedTooLow, ValueNull, NumberOutOfRange, LinesWrong, NoDueTime, ClosedBefore, RowNotFound,
		Locked, PaymentUnknown, RefusedByTrigger, RefusedByServer, NoAnswer, Unexplained}
}

// CauseError says why one order cannot be closed. A Store may return it as Outcome.Err or as the error of a call with one order.
type CauseError struct {
	Cause FailureCause
	What  string // one sentence, with the SKU, the column and the value if they are known
	Err   error  // of the close; may be nil
}

// Error returns the sentence, with the cause before it unless that is Unexplained.
func (e *CauseError) Error() string {
	if e.Cause == Unexplained {
		return e.What
	}
	return string(e.Cause) + ": " + e.What
}

// Unwrap returns the error of the close.
func (e *CauseError) Unwrap() error { return e.Err }

// Why returns why the order stays open. It returns nil without a verdict, and after a verdict that is no failure, such as Closed and NotDue.
func (o Outcome) Why() *CauseError {
	switch o.Verdict {
	case "", Closed, AlreadyPaid, AlreadyClosed, NotDue, Excluded, Paused:
		return nil
	}
	if known, ok := errors.AsType[*CauseError](o.Err); ok {
		return known
	}
	why := &CauseError{Unexplained, "the store says " + string(o.Verdict) + ", and not why", o.Err}
	if o.Err != nil {
		why.What = o.Err.Error()
	}
	for _, cause := range FailureCauses() { // a service writes it into the text
		if _, rest, found := strings.Cut(": "+why.What, ": "+string(cause)+": "); found {
			why.Cause, why.What = cause, rest
			return why
		}
	}
	switch {
	case o.Verdict == Contended:
		why.Cause = Locked
	case o.Verdict == NotFound:
		why.Cause, why.What = RowNotFound, "the store has no such order"
	case o.Verdict == PaymentPending:
		why.Cause, why.What = PaymentUnknown, "the payment provider does not know yet whether the order is paid"
	case errors.Is(o.Err, ErrUnavailable):
		why.Cause = NoAnswer
	}
	return why
}
