package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// errClosedBefore says that the receipt of an order exists, whose status is open.
var errClosedBefore = errors.New("an order that was closed is not closed again, so that its stock comes back once: give an order that is opened again a new id")

// explainDuplicate names an order of the batch that was closed before. err says that a row of
// the ledger or a receipt exists already: the shop has opened the order again. The transaction has ended: after an
// error PostgreSQL answers no further statement in it.
func (c *closing) explainDuplicate(ctx context.Context, err error) error {
	for _, ids := range c.won {
		for part := range slices.Chunk(ids, maxIn) {
			var id, path string
			var at time.Time
			row := c.s.gorm.WithContext(ctx).Raw("SELECT order_id, path, closed_at FROM receipts WHERE order_id IN ? ORDER BY order_id LIMIT 1", part).Row()
			if row.Scan(&id, &path, timeInto(&at)) == nil {
				return fmt.Errorf("order %q has a receipt: the path %s closed it at %s; %w: %w", id, path, at.Format(time.RFC3339), errClosedBefore, err)
			}
		}
	}
	return err
}
