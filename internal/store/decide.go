package store

import (
	"time"

	"github.com/orderclose/orderclose"
)

// verdict returns what a close does with an order of this state and due time, when the
// database's clock is now. Pure.
func verdict(st state, due, now time.Time) orderclose.Verdict {
	switch {
	case st == stateClosed:
		return orderclose.AlreadyClosed
	case st != stateOpen:
		return orderclose.AlreadyPaid
	case due.IsZero():
		return orderclose.Failed // errNoDue
	case due.After(now):
		return orderclose.NotDue
	default:
		return orderclose.Closed
	}
}
