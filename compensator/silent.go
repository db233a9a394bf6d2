package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

// silent returns the loop's own verdict on the orders of a page if the store gives a verdict on none of them; else "". The error says why
// nothing can be closed now: all is paused, or the store gives no verdict on another order either.
func (t *turn) silent(ctx context.Context, r result) (verdict orderclose.Verdict, err error) {
	if errors.Is(r.err, orderclose.ErrPaused) || ctx.Err() != nil {
		return "", cmp.Or(r.err, ctx.Err())
	}
	if slices.ContainsFunc(r.outcomes, func(o orderclose.Outcome) bool { return o.Verdict != "" }) {
		return "", nil
	}
	if verdict = t.proven(ctx, r); verdict == "" { //mutant:rest-without-proof
		t.pages.sizes = [kinds]int{kindNews: 1, kindOlder: 1, kindRested: 1}
		err = fmt.Errorf("the store gives no verdict: %w", r.err)
	}
	return verdict, err
}

// proven returns the verdict on the orders of a page on which the store gives no verdict. It is Failed if the store gives a verdict on another
// overdue order. If no other order is overdue, nothing shows who is at fault: Contended, after which the loop soon tries them again. Else it is "".
func (t *turn) proven(ctx context.Context, r result) orderclose.Verdict {
	if errors.Is(r.err, orderclose.ErrNoOrderAtFault) { // it says so itself
		return ""
	}
	o, err := t.another(ctx, r.orders)
	switch {
	case err != nil:
		return ""
	case o.ID == "":
		return orderclose.Contended
	}
	if other := t.pages.close(ctx, kindProbe, []orderclose.Order{o}, callTimeout); len(other) > 0 && other[0].outcomes[0].Verdict != "" {
		t.decided(o, other[0].outcomes[0])
		return orderclose.Failed
	}
	return ""
}

// another returns an overdue order that is not in the page. It takes one of the newest at random: always the same one may be an order that fails too.
// It prefers orders that do not rest. From a Reader that only reads forward it takes one of the oldest. The ID is empty if there is no such order.
func (t *turn) another(ctx context.Context, page []orderclose.Order) (other orderclose.Order, err error) {
	var found []orderclose.Order
	for _, after := range []time.Time{t.cutoff.Add(-newHolderBack), {}} {
		if len(found) == 0 && err == nil {
			found, _, _, err = t.read(ctx, &t.news, overdue.Window{After: orderclose.Order{Due: after}, To: t.cutoff, Newest: true}, 0)
		}
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] }) //mutant:same-order-proves
	for _, o := range t.unpaused(found) {
		rests := t.rests.has(o.ID, time.Now())
		if slices.ContainsFunc(page, func(p orderclose.Order) bool { return p.ID == o.ID }) || rests && other.ID != "" {
			continue
		}
		if other = o; !rests {
			break
		}
	}
	return other, notSlow(err)
}
