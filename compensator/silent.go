package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

// silent reports whether the store gives a verdict on no order of a page. Then another order shows whether the store works. The error says why
// nothing can be closed now: all is paused, or the store gives no verdict on that order either.
func (t *turn) silent(ctx context.Context, r result) (silent bool, err error) {
	if errors.Is(r.err, orderclose.ErrPaused) || ctx.Err() != nil {
		return false, cmp.Or(r.err, ctx.Err())
	}
	silent = !slices.ContainsFunc(r.outcomes, func(o orderclose.Outcome) bool { return o.Verdict != "" })
	if silent && !t.othersAnswer(ctx, r) { //mutant:rest-without-proof
		t.pages.sizes = [kinds]int{kindNews: 1, kindOlder: 1, kindRested: 1}
		return true, fmt.Errorf("the store gives no verdict: %w", r.err)
	}
	return silent, nil
}

// othersAnswer reports whether the store gives a verdict on the newest overdue order outside a page on which it has given none.
func (t *turn) othersAnswer(ctx context.Context, r result) bool {
	if errors.Is(r.err, orderclose.ErrNoOrderAtFault) { // it says so itself
		return false
	}
	o, err := t.newestOutside(ctx, r.orders)
	if err != nil || o.ID == "" {
		return false
	}
	other := t.pages.close(ctx, kindProbe, []orderclose.Order{o}, callTimeout)
	if len(other) == 0 || other[0].outcomes[0].Verdict == "" {
		return false
	}
	t.decided(o, other[0].outcomes[0])
	return true
}

// newestOutside returns the newest overdue order that is not in the page. It prefers orders that do not rest. A Reader that only reads forward
// gives the oldest order in place of the newest. The ID is empty if there is no such order.
func (t *turn) newestOutside(ctx context.Context, page []orderclose.Order) (newest orderclose.Order, err error) {
	var found []orderclose.Order
	for _, after := range []time.Time{t.cutoff.Add(-newHolderBack), {}} {
		if len(found) == 0 && err == nil {
			found, _, _, err = t.read(ctx, &t.news, overdue.Window{After: orderclose.Order{Due: after}, To: t.cutoff, Newest: true}, 0)
		}
	}
	for _, o := range t.unpaused(found) {
		same := func(p orderclose.Order) bool { return p.ID == o.ID }
		rests := t.rests.has(o.ID, time.Now())
		if slices.ContainsFunc(page, same) || rests && newest.ID != "" {
			continue
		}
		if newest = o; !rests {
			break
		}
	}
	return newest, err
}
