package compensator

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// shortestRest is how long an order rests after the first try. Each further try doubles the rest, up to maxRest, but of a locked or paused order.
	shortestRest, maxRest = 5 * time.Second, 5 * time.Minute
	// maxResting bounds the memory of rests: some 25 MB.
	maxResting = 100_000
	// keepSettled is how long a rest is remembered, after it has ended, of an order that the store says not to close. It is longer than two passes,
	// which would find the order again if its row stays unpaid.
	keepSettled = 2 * time.Minute
)

// rest says how long an order is left alone after a try.
type rest struct {
	order   orderclose.Order
	wait    time.Duration
	ends    time.Time // by the monotonic clock
	settled bool      // the store says not to close the order: it is tried again only if a read finds it again
	failed  bool      // the last call failed
	skipped int       // how often in a row the order failed in a page that was not searched
	answers int64     // calls that had succeeded when the order failed
}

// rests are the orders that were tried and rest, by id: orders that could not be closed wait here for their next try.
type rests map[string]rest

// full reports whether no more orders can rest.
func (r rests) full() bool { return len(r) >= maxResting }

// has reports whether a read leaves an order out: it rests, or its rest has ended and the slow lane tries it.
func (r rests) has(id string, now time.Time) bool {
	e, known := r[id]
	return known && (!e.settled || now.Before(e.ends))
}

// tried notes the verdict on an order. It reports whether the order was tried before.
func (r rests) tried(o orderclose.Order, v orderclose.Verdict, now time.Time) (before bool) {
	last, before := r[o.ID]
	if v == orderclose.Closed {
		delete(r, o.ID)
	} else if before || !r.full() {
		wait := nextRest(last.wait, v)
		r[o.ID] = rest{
			order:   orderclose.Order{ID: o.ID, Category: o.Category, CreatedAt: o.CreatedAt, Due: o.Due},
			wait:    wait,
			ends:    now.Add(wait),
			settled: settles(v),
		}
	}
	return before
}

// settles reports whether a verdict says that the order is not to be closed.
func settles(v orderclose.Verdict) bool {
	return v == orderclose.AlreadyPaid || v == orderclose.AlreadyClosed || v == orderclose.Excluded || v == orderclose.NotDue || v == orderclose.NotFound
}

// nextRest returns the next rest of an order: twice the last one. Locked and paused orders may be closed at any moment.
func nextRest(last time.Duration, v orderclose.Verdict) time.Duration {
	if v == orderclose.Contended || v == orderclose.Paused {
		return shortestRest
	}
	return min(max(2*last, shortestRest), maxRest)
}

// failedWith notes that a call with an order failed: alone, or in a page that was not searched. While no other call has succeeded since the order last
// failed, the store may be down, and the order does not rest for longer. It reports whether the order was tried before.
func (r rests) failedWith(o orderclose.Order, alone bool, answers int64, now time.Time) (before bool) {
	last, before := r[o.ID]
	if !before && r.full() {
		return false
	}
	e := rest{order: o, wait: nextRest(last.wait, orderclose.Failed), failed: true, skipped: last.skipped + 1, answers: answers}
	if before && last.failed && last.answers == answers { //mutant:rest-without-proof
		e.wait = last.wait
	}
	if alone {
		e.skipped = 0
	}
	e.ends = now.Add(e.wait)
	r[o.ID] = e
	return before
}

// maxSkipped is how often in a row an order may fail in a page that is not searched. So one that has healed closes within three rests.
const maxSkipped = 2

// rested is an order whose rest has ended. A page of orders to skip needs no search if its first part fails too: they have failed before.
type rested struct {
	order  orderclose.Order
	skip   bool
	failed int // how often its rest was doubled, and once
}

// ended returns the orders whose rest has ended, in the order of the ends, and forgets those that no read has found again.
func (r rests) ended(now time.Time) (orders []rested) {
	var ended []rest
	for id, e := range r {
		switch {
		case e.settled && now.After(e.ends.Add(keepSettled)):
			delete(r, id)
		case !e.settled && !now.Before(e.ends):
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b rest) int { return cmp.Or(a.ends.Compare(b.ends), cmp.Compare(a.order.ID, b.order.ID)) })
	for _, e := range ended {
		orders = append(orders, rested{e.order, e.failed && e.skipped < maxSkipped, bits.Len(uint(e.wait / shortestRest))}) //mutant:skipped-for-ever
	}
	return orders
}
