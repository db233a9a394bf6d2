package compensator

import (
	"cmp"
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
}

// rests are the orders that were tried and rest, by id: here lies an order that cannot be closed.
type rests map[string]rest

// full reports whether no more orders can rest.
func (r rests) full() bool { return len(r) >= maxResting }

// has reports whether a read leaves an order out: it rests, or its rest has ended and askRested asks for it.
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
		r[o.ID] = rest{orderclose.Order{ID: o.ID, Category: o.Category, CreatedAt: o.CreatedAt, Due: o.Due}, wait, now.Add(wait), settles(v)}
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

// ended returns the orders whose rest has ended, in the order of the ends, and forgets those that no read has found again.
func (r rests) ended(now time.Time) []orderclose.Order {
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
	orders := make([]orderclose.Order, len(ended))
	for i, e := range ended {
		orders[i] = e.order
	}
	return orders
}
