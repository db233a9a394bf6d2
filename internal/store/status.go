package store

import (
	"time"

	"orderclose"
)

// Status is the state of an order as the column orders.status has it.
type Status int8

// An order begins unpaid and leaves that state once.
const (
	Unpaid    Status = 0
	Paid      Status = 1
	Closed    Status = 2
	Cancelled Status = 3
)

// verdict says what closing does with an order of this status and due time at
// the database's time now. A status that this package does not know is one that
// only a paid order can have gone on to.
func verdict(st Status, due, now time.Time) orderclose.Verdict {
	switch {
	case st == Closed || st == Cancelled:
		return orderclose.AlreadyClosed
	case st != Unpaid:
		return orderclose.AlreadyPaid
	case due.After(now):
		return orderclose.NotDue
	default:
		return orderclose.Closed
	}
}
