package compensator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

// othersAnswer reports whether the store gives a verdict on the newest overdue order outside a page on which it has given none.
func (t *turn) othersAnswer(ctx context.Context, r result) bool {
	if errors.Is(r.err, orderclose.ErrNoOrderAtFault) { // it says so itself
		return false
	}
	o, err := t.newestOutside(ctx, r.orders)
	if err != nil || o.ID == "" {
		return false
	}
	other := t.pages.close(ctx, kindProbe, [][]orderclose.Order{{o}})[0]
	if other.outcomes[0].Verdict == "" {
		return false
	}
	t.decided(o, other.outcomes[0])
	return true
}

// newestOutside returns the newest overdue order that is not in the page, if possible one that does not rest. Its ID is empty if there is none.
func (t *turn) newestOutside(ctx context.Context, page []orderclose.Order) (newest orderclose.Order, err error) {
	found, err := t.calls.ReadOverdue(ctx, overdue.Window{After: orderclose.Order{Due: t.cutoff.Add(-newHolderBack)}, To: t.cutoff, Newest: true})
	if err == nil && len(found.Orders) == 0 {
		found, err = t.calls.ReadOverdue(ctx, overdue.Window{To: t.cutoff, Newest: true})
	}
	for _, o := range found.Orders {
		same := func(p orderclose.Order) bool { return p.ID == o.ID }
		if t.paused[o.Category] || slices.ContainsFunc(page, same) {
			continue
		}
		if !t.rests.rests(o.ID, time.Now()) {
			return o, err
		}
		if newest.ID == "" {
			newest = o
		}
	}
	return newest, err
}
