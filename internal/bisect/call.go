package bisect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

// CallTimeout is the longest time limit of a call.
const CallTimeout = 10 * time.Second

// Caller makes calls of a Store, each within a limit of time. It is safe for concurrent use.
type Caller struct {
	// Logger gets an error when the store panics on an order, or breaks its contract. Default: discarded.
	Logger *slog.Logger

	limits Limits
}

// maxDoublings is how often the time limit for an order that fails again is doubled.
const maxDoublings = 3

// Limit returns the time limit of a call with n orders: by what calls of that size take, unless the store limits its calls itself. It is twice as
// long for each time that the order has failed before: the store may need long for this one alone.
func (c *Caller) Limit(s Store, n, failed int) time.Duration {
	if LimitsItself(s) {
		return CallTimeout
	}
	return min(c.limits.Of(n)<<min(failed, maxDoublings), CallTimeout) //mutant:slow-order-never-closes
}

// Close makes one call, and returns how long it took. The outcomes are checked. The error of a call that reached its limit wraps
// orderclose.ErrUnavailable, and that of one that panicked is a *retry.PanicError.
func (c *Caller) Close(ctx context.Context, s Store, path orderclose.Path, requests []orderclose.CloseRequest, limit time.Duration) (
	outcomes []orderclose.Outcome, took time.Duration, err error,
) {
	began := time.Now()
	err = Within(ctx, limit, func(ctx context.Context) (err error) {
		outcomes, err = s.CloseOrders(ctx, path, requests)
		return err
	})
	if err == nil {
		err = CheckOutcomes(requests, outcomes)
	}
	took = time.Since(began)
	if ctx.Err() == nil && !errors.Is(err, orderclose.ErrNoOrderAtFault) {
		c.limits.Ended(len(requests), limit, took, err == nil)
	}
	c.log(requests, err)
	return outcomes, took, err
}

// Within calls f with a limit of time, and turns a panic into an error. If f does not answer within the limit, the error wraps
// orderclose.ErrUnavailable.
func Within(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit) //mutant:endless-close-call
	defer cancel()
	err := retry.Catch(func() error { return f(limited) })
	if err != nil && limited.Err() != nil && ctx.Err() == nil { //mutant:panic-is-outage
		err = retry.WithCauses(fmt.Errorf("no answer within %v: %w", limit, err), orderclose.ErrUnavailable)
	}
	return err
}

// log logs an error that a programmer must see.
func (c *Caller) log(requests []orderclose.CloseRequest, err error) {
	if c.Logger == nil {
		return
	}
	if p, panicked := errors.AsType[*retry.PanicError](err); panicked && len(requests) == 1 {
		c.Logger.Error("the store panicked", "order", requests[0].OrderID, "err", p, "stack", p.Stack)
	}
	if _, broken := errors.AsType[contractError](err); broken && len(requests) > 1 {
		c.Logger.Error("the store breaks its contract, so the orders of this call are closed in smaller calls", "err", err)
	}
}

// Limits are time limits of calls, by the number of their orders. The zero value is ready to use. Limits are safe for concurrent use.
type Limits struct {
	mu       sync.Mutex
	reached  time.Duration     // the limit after calls with one order that reached theirs, with no success since
	answered time.Time         // when a call last succeeded
	took     [32]time.Duration // by successful calls, by the binary logarithm of the number of orders
}

// leastLimit is the time limit of a call as long as nothing shows that calls take longer.
const leastLimit = 1500 * time.Millisecond

// Of returns the limit of a call with n orders: three times what calls of that size take, or leastLimit if that is longer.
func (l *Limits) Of(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Duration(0)
	for size := bits.Len(uint(n)); size > 0 && took == 0; size-- {
		took = l.took[min(size, len(l.took)-1)]
	}
	return min(max(leastLimit, 3*took, l.reached), CallTimeout) //mutant:sweep-call-unlimited
}

// Ended takes note of a call with n orders that had the given limit. A call with one order that
// reached it doubles the limit of the next calls, until one succeeds, unless another one has succeeded meanwhile: only single orders show that a store is slow.
func (l *Limits) Ended(n int, limit, took time.Duration, succeeded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch size := min(bits.Len(uint(n)), len(l.took)-1); {
	case succeeded && l.took[size] == 0:
		l.reached, l.answered, l.took[size] = 0, time.Now(), took
	case succeeded:
		l.reached, l.answered, l.took[size] = 0, time.Now(), (l.took[size]+took)/2
	case took >= limit && n == 1 && time.Since(l.answered) >= took:
		l.reached = max(l.reached, 2*limit)
	}
}
