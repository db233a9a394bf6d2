package bisect

import (
	"context"
	"errors"
	"sync"

	"github.com/orderclose/orderclose"
)

// LaneCalls is how many calls of a Lane run at once, and into how many parts it splits orders: a store that gives no answer on one of
// 500 orders then costs three time limits, one for each size of parts.
const LaneCalls = 8

// Lane finds the orders that make calls fail. It splits the orders of a failed call, makes a call for each part, and splits the parts that fail
// again, down to single orders. It is safe for concurrent use.
//
// Orders that were never tried in smaller parts come first. Of the calls that run, one is kept for orders of Again.
type Lane[T any] struct {
	// Call makes one call.
	Call func(ctx context.Context, orders []T) error
	// Failed gets the orders of which no part is tried any more: one order that failed alone, or orders of Again. It must not call the Lane.
	Failed func(orders []T, err error)
	// Again returns orders that failed before and are to be tried again now. If their call fails, and skip is true, and the first part of them
	// fails too, they are not searched, because most of them will fail again. Nil, or no orders: there are none.
	Again func() (orders []T, skip bool)
	// Calls returns how many calls may run at once; nil: LaneCalls.
	Calls func() int

	mu       sync.Mutex
	untried  []part[T]
	again    []part[T]
	running  int
	retrying int   // calls that run for orders of Again
	stopped  error // why no call starts: no order was at fault for a failure
	calls    sync.WaitGroup
}

// part is orders of one call.
type part[T any] struct {
	orders []T
	skip   bool // the orders are a page of Again that is not searched if its first part fails too
	behind []T  // the other orders of that page, while its first part is tried
	again  bool
}

// Add queues the orders of a call that failed.
func (l *Lane[T]) Add(orders []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.untried = append(l.untried, split(orders, false)...)
}

// Start makes calls until no order waits, or a call fails for which no order is at fault. It returns at once.
func (l *Lane[T]) Start(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = nil
	l.start(ctx)
}

// Wait waits until no call runs, and returns the error of one for which no order was at fault.
func (l *Lane[T]) Wait() error {
	l.calls.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// Waiting returns how many orders wait, without those of Again.
func (l *Lane[T]) Waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.untried {
		n += len(p.orders)
	}
	return n
}

// Clear forgets the orders that wait, and starts no call until the next Start. It returns what it forgot.
func (l *Lane[T]) Clear() (orders []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range append(l.untried, l.again...) {
		orders = append(append(orders, p.orders...), p.behind...)
	}
	l.untried, l.again, l.stopped = nil, nil, context.Canceled
	return orders
}

// start starts calls while parts wait. Its caller has mu.
func (l *Lane[T]) start(ctx context.Context) {
	most := LaneCalls
	if l.Calls != nil {
		most = l.Calls()
	}
	for l.stopped == nil && l.running < most {
		p, found := l.next()
		if !found {
			return
		}
		l.running++
		if p.again {
			l.retrying++
		}
		l.calls.Go(func() {
			err := l.Call(ctx, p.orders)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.running--
			if p.again {
				l.retrying--
			}
			l.ended(ctx, p, err)
			l.start(ctx)
		})
	}
}

// next returns the part to try next.
func (l *Lane[T]) next() (p part[T], found bool) {
	if len(l.untried) > 0 && l.retrying > 0 {
		return pop(&l.untried), true
	}
	if len(l.again) > 0 {
		return pop(&l.again), true
	}
	if l.Again != nil {
		if p.orders, p.skip = l.Again(); len(p.orders) > 0 {
			p.again = true
			return p, true
		}
	}
	if len(l.untried) > 0 {
		return pop(&l.untried), true
	}
	return p, false
}

func pop[P any](parts *[]P) P {
	first := (*parts)[0]
	*parts = (*parts)[1:]
	return first
}

// ended takes note of the end of a call. Its caller has mu.
func (l *Lane[T]) ended(ctx context.Context, p part[T], err error) {
	switch {
	case err == nil:
		l.first(split(p.behind, p.again))
	case ctx.Err() != nil || errors.Is(err, orderclose.ErrNoOrderAtFault):
		l.stopped = err
		l.first([]part[T]{p})
	case p.behind != nil || len(p.orders) == 1:
		l.Failed(append(p.orders[:len(p.orders):len(p.orders)], p.behind...), err)
	case p.skip:
		parts := split(p.orders, true)
		n := len(parts[0].orders)
		parts[0].behind = p.orders[n:]
		l.first(parts[:1])
	default:
		l.first(split(p.orders, p.again))
	}
}

// first queues parts before all others: small parts before large ones, so that some call soon succeeds.
func (l *Lane[T]) first(parts []part[T]) {
	if len(parts) == 0 {
		return
	}
	to := &l.untried
	if parts[0].again {
		to = &l.again
	}
	*to = append(parts, *to...)
}

// split splits orders into LaneCalls parts.
func split[T any](orders []T, again bool) (parts []part[T]) {
	for len(orders) > 0 {
		n := max((len(orders)+LaneCalls-len(parts)-1)/(LaneCalls-len(parts)), 1)
		parts = append(parts, part[T]{orders: orders[:n:n], again: again})
		orders = orders[n:]
	}
	return parts
}
