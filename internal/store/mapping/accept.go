package mapping

import "slices"

// The names of problems that topics.yaml can accept.
const (
	FutureNotBefore  = "future_not_before" // not_before is in the future
	IndexedQuantity  = "indexed_quantity"  // a quantity has an index of its own
	VersionLikeID    = "version_like_id"   // the version looks like an id
	LockLikeCreated  = "lock_like_created" // the time of the lock looks like a time of creation
	FarDue           = "far_due"           // an unpaid order is due later than the longest delay
	NeverDue         = "never_due"         // most unpaid orders are never due
	NothingDueLater  = "nothing_due_later" // unpaid orders exist, and none is due in the future
	OverwrittenClose = "overwritten_close" // the shop writes another closed status to orders that were closed
	RowSecurity      = "row_security"      // row-level security applies to the user, and its policies show all rows

	OnCloseOtherID = "on_close_other_id" // a statement of on_close compares a column that is probably no order's id
	UnnamedStatus  = "unnamed_status"    // orders have a status that the mapping does not name
	PaidOrders     = "paid_orders"       // orders of the status before or after a close have a time of payment

	FilledPaymentID = "filled_payment_id"  // unpaid orders have a payment's id
	FilledBefore    = "filled_before"      // unpaid orders have a value in another column that only orderclose writes
	DueBefore2000   = "due_before_2000"    // unpaid orders are due before the year 2000
	DueBeforeMade   = "due_before_created" // unpaid orders are due before they were created
	StockBelowZero  = "stock_below_zero"   // rows of the stock are below zero
	OldOrders       = "old_orders"         // orders that were due long before the database was migrated are closed too
)

// Acceptable returns all names of problems that topics.yaml can accept.
func Acceptable() []string {
	return []string{FutureNotBefore, IndexedQuantity, VersionLikeID, LockLikeCreated, FarDue, NeverDue, NothingDueLater, OverwrittenClose,
		RowSecurity, OnCloseOtherID, UnnamedStatus, PaidOrders, FilledPaymentID, FilledBefore, DueBefore2000, DueBeforeMade, StockBelowZero, OldOrders}
}

// OrAccept returns a fix, and that the problem can be accepted by name. An empty name: it cannot.
func OrAccept(fix, name string) string {
	if name == "" {
		return fix
	}
	return fix + ", or add " + name + " to accept"
}

// Unaccepted removes the problems that the mapping accepts.
func (m *Mapping) Unaccepted(problems []Problem) []Problem {
	return slices.DeleteFunc(problems, func(p Problem) bool { return p.Accept != "" && slices.Contains(m.Accept, p.Accept) })
}
