package closetx

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// verdict returns what a close does with an order of this state and due time, when the
// database's clock is now. An order that is due before notBefore is excluded. Pure.
func verdict(st db.State, due, notBefore, now time.Time) orderclose.Verdict {
	switch {
	case st == db.StateClosed:
		return orderclose.AlreadyClosed
	case st == db.StatePaid: //mutant:no-cas
		return orderclose.AlreadyPaid
	case st == db.StateExcluded: //mutant:excluded-closed
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
