package orderclose

import (
	"cmp"
	"errors"
	"strings"
)

// FailureCause is why an order stays open, in one word. docs/runbook.md, An order cannot be closed, has a remedy for each.
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
	TableUnfit       FailureCause = "table_unfit"         // the order is in a table of a month that does not fit the mapping
	InTwoTables      FailureCause = "in_two_tables"       // two tables of orders have the order
	Locked           FailureCause = "locked"              // another transaction holds the order, a line or its stock
	PaymentUnknown   FailureCause = "payment_pending"     // the payment provider has no answer yet
	RefusedByTrigger FailureCause = "refused_by_trigger"  // a trigger raises an error, or keeps the status
	RefusedByServer  FailureCause = "refused_by_server"   // the server refuses a statement, such as by a constraint
	NoAnswer         FailureCause = "no_answer"           // the store gave no answer on this order in time, and gave answers on others
	Unexplained      FailureCause = "unexplained"         // any other error
)

// Why returns why the order stays open: a word, which is Cause or else follows from the verdict, and a sentence, which begins with the word
// unless it is Unexplained, and has the text of Err. Both are empty without a verdict, and after one that is no failure, such as Closed
// and NotDue.
func (o Outcome) Why() (cause FailureCause, sentence string) {
	cause, text := Unexplained, "the store says "+string(o.Verdict)
	switch o.Verdict {
	case "", Closed, AlreadyPaid, AlreadyClosed, NotDue, Excluded, Paused:
		return "", ""
	case Contended:
		cause = Locked
	case NotFound:
		cause = RowNotFound
	case PaymentPending:
		cause = PaymentUnknown
	}
	if errors.Is(o.Err, ErrUnavailable) {
		cause = NoAnswer
	}
	if o.Err != nil {
		text = o.Err.Error()
	}
	if cause = cmp.Or(o.Cause, cause); cause == Unexplained {
		return cause, text
	}
	return cause, string(cause) + ": " + strings.TrimPrefix(text, string(cause)+": ")
}
