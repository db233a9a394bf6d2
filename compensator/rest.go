package compensator

import (
	"container/heap"
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// shortestRest is how long an order rests after the first try. Each further try doubles the rest, up to maxRest.
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
	until   time.Time     // by the monotonic clock
	wait    time.Duration // the last rest
	settled bool          // the store says not to close the order: it is tried again only if a read finds it again
	failure Failure
	leaves  time.Time // when it leaves the heap
	index   int       // in the heap; -1: it is not there
}

// rests are the orders that rest.
type rests struct {
	byID map[string]*rest
	ends restHeap // by leaves
}

func newRests() *rests { return &rests{byID: map[string]*rest{}} }

// full reports whether no more orders can rest.
func (r *rests) full() bool { return len(r.byID) >= maxResting }

// rests reports whether a read leaves an order out: it rests, or its rest has ended and askRested asks for it.
func (r *rests) rests(id string, now time.Time) bool {
	e := r.byID[id]
	return e != nil && (!e.settled || now.Before(e.until))
}

// tried notes the outcome of a try, at now by the monotonic clock and at by the database's. It returns the failure of the order so far.
func (r *rests) tried(o orderclose.Order, outcome orderclose.Outcome, now, at time.Time) Failure {
	cause, why := outcome.Why()
	e := r.byID[o.ID]
	if e == nil {
		e = &rest{order: orderclose.Order{ID: o.ID, Category: o.Category, CreatedAt: o.CreatedAt, Due: o.Due}, index: -1,
			failure: Failure{OrderID: o.ID, Since: at.UTC()}}
	}
	e.failure.Cause, e.failure.Error, e.failure.Times = string(cause), why, e.failure.Times+1
	if outcome.Verdict == orderclose.Closed {
		r.forget(e)
		return e.failure
	}
	e.settled = settles(outcome.Verdict)
	e.wait = nextRest(e.wait, outcome.Verdict)
	e.until = now.Add(e.wait)
	if e.leaves = e.until; e.settled {
		e.leaves = e.until.Add(keepSettled)
	}
	r.keep(e)
	return e.failure
}

// settles reports whether a verdict says that the order is not to be closed.
func settles(v orderclose.Verdict) bool {
	return v == orderclose.AlreadyPaid || v == orderclose.AlreadyClosed || v == orderclose.Excluded || v == orderclose.NotDue
}

// nextRest returns the next rest of an order: twice the last one. Locked and paused orders may be closed at any moment.
func nextRest(last time.Duration, v orderclose.Verdict) time.Duration {
	if v == orderclose.Contended || v == orderclose.Paused {
		return shortestRest
	}
	return min(max(2*last, shortestRest), maxRest)
}

// keep puts a rest into the heap, or moves it there. If too many rest, a new one is not kept.
func (r *rests) keep(e *rest) {
	if r.byID[e.order.ID] == nil {
		if r.full() {
			return
		}
		r.byID[e.order.ID] = e
	}
	if e.index < 0 {
		heap.Push(&r.ends, e)
		return
	}
	heap.Fix(&r.ends, e.index)
}

// forget removes a rest.
func (r *rests) forget(e *rest) {
	delete(r.byID, e.order.ID)
	if e.index >= 0 {
		heap.Remove(&r.ends, e.index)
	}
}

// ended takes up to limit orders whose rest has ended out of the heap, in the order of the ends. Orders of paused categories rest again.
func (r *rests) ended(now time.Time, limit int, paused map[string]bool) (orders []orderclose.Order) {
	for len(r.ends) > 0 && len(orders) < limit && !now.Before(r.ends[0].leaves) {
		e := r.ends[0]
		switch {
		case e.settled:
			r.forget(e)
		case paused[e.order.Category]:
			e.until, e.leaves = now.Add(shortestRest), now.Add(shortestRest)
			heap.Fix(&r.ends, 0)
		default:
			heap.Pop(&r.ends)
			orders = append(orders, e.order)
		}
	}
	return orders
}

// putBack returns orders to the heap that ended has taken, and that were not tried.
func (r *rests) putBack(orders []orderclose.Order) {
	for _, o := range orders {
		if e := r.byID[o.ID]; e != nil && e.index < 0 {
			heap.Push(&r.ends, e)
		}
	}
}

// restHeap implements heap.Interface.
type restHeap []*rest

func (h restHeap) Len() int           { return len(h) }
func (h restHeap) Less(i, j int) bool { return h[i].leaves.Before(h[j].leaves) }
func (h restHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *restHeap) Push(x any) {
	e := x.(*rest)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *restHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	e.index = -1
	*h = old[:len(old)-1]
	return e
}
