package store

import "fmt"

// Status is the state of an order, as the column orders.status stores it.
type Status int8

// An order begins unpaid and leaves that status once: it becomes paid, closed or cancelled. A
// paid order becomes shipped, and a shipped order confirmed. Unpaid and paid orders hold
// reserved stock; other orders hold none.
const (
	Unpaid    Status = 0
	Paid      Status = 1
	Closed    Status = 2
	Cancelled Status = 3
	Shipped   Status = 4
	Confirmed Status = 5
)

var statusNames = [...]string{"unpaid", "paid", "closed", "cancelled", "shipped", "confirmed"}

// String returns the name of the status: unpaid, paid, closed and so on.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("status %d", int8(s))
	}
	return statusNames[s]
}
