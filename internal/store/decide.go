package store

import (
	"time"

	"orderclose"
)

// verdict says what closing does with an order in this state, due then, at the
// database's time now.
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
