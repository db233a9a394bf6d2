package store

import (
	"time"

	"github.com/orderclose/orderclose"
)

// verdict returns what a close does with an order of this state and due time, when the
// database's clock is now. An order that is due before notBefore is excluded. Pure.
func verdict(st state, due, notBefore, now time.Time) orderclose.Verdict {
	switch {
	case st == stateClosed:
		return orderclose.AlreadyClosed
	case st == statePaid: //mutant:no-cas
		return orderclose.AlreadyPaid
	case st == stateExcluded: //mutant:excluded-closed
		return orderclose.Excluded
	case due.IsZero():
		return orderclose.Failed // errNoDue
	case due.Before(notBefore):
		return orderclose.Excluded
	case due.After(now): //mutant:before-due
		return orderclose.NotDue
	default:
		return orderclose.Closed
	}
}
