package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// callTimeout is how long one call of a Store, SweepLog or Lock may take. While orders are searched on
	// which the store hangs, calls of CloseOrders have less time (internal/bisect).
	callTimeout = bisect.CallTimeout
	// stopTimeout is how long a call may ignore the end of its context before the process is
	// better restarted.
	stopTimeout = 10 * time.Second
)

// calls is the Store and SweepLog that a Compensator uses: those of the user. It limits the time of
// each call, turns panics into errors, and checks the pages. It is safe for concurrent use.
type calls struct {
	store  Store
	log    SweepLog
	onHang func(why string)
	logger *slog.Logger
}

// call returns the result of f. If f does not answer within callTimeout, the error wraps
// orderclose.ErrUnavailable. If f ignores the end of its context too, call calls onHang; the error
// then also wraps orderclose.ErrNoOrderAtFault. what names the call.
func call[T any](ctx context.Context, c *calls, what string, f func(ctx context.Context) (T, error)) (result T, err error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout) //mutant:sweep-call-unlimited
	defer cancel()
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		a.err = c.catch(what, func() (err error) { a.result, err = f(limited); return err })
		answers <- a
	}()
	hang := time.NewTimer(callTimeout + stopTimeout)
	defer hang.Stop()
	select {
	case a := <-answers:
		if a.err != nil && limited.Err() != nil && ctx.Err() == nil {
			a.err = fmt.Errorf("%w: %s: no answer within %v: %w", orderclose.ErrUnavailable, what, callTimeout, a.err)
		}
		return a.result, a.err
	case <-hang.C:
		c.onHang(what + " hangs and ignores the end of its context") //mutant:sweep-call-waits
		return result, fmt.Errorf("%w: %w: %s: no answer, and it ignores the end of its context", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, what)
	}
}

// closeOrders names the call whose panics internal/bisect logs: it repeats them to find the order at
// fault.
const closeOrders = "the store's method CloseOrders"

// catch is retry.Catch, and logs the stack of a panic.
func (c *calls) catch(what string, f func() error) error {
	err := retry.Catch(f)
	if p, ok := errors.AsType[*retry.PanicError](err); ok && what != closeOrders {
		c.logger.Error("code of this program panicked, which counts as an error", "call", what, "err", err, "stack", p.Stack)
	}
	return err
}

// watched runs f as catch does. It is for functions of the user that take no context, so they cannot be
// stopped: if f takes longer than a call that ignores its context may take, watched calls onHang.
func (c *calls) watched(what string, f func() error) error {
	hang := time.AfterFunc(callTimeout+stopTimeout, func() { c.onHang(what + " hangs") })
	defer hang.Stop()
	return c.catch(what, f)
}

// Now implements Store.
func (c *calls) Now(ctx context.Context) (time.Time, error) {
	return call(ctx, c, "the store's method Now", c.store.Now)
}

// Overdue implements Store.
func (c *calls) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	page, err := call(ctx, c, "the store's method Overdue", func(ctx context.Context) ([]orderclose.Order, error) {
		return c.store.Overdue(ctx, cutoff, after, limit)
	})
	if err == nil {
		err = checkPage(page, cutoff, after, limit)
	}
	return page, err
}

// CloseOrders implements Store.
func (c *calls) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	for _, r := range requests {
		if r.OrderID == "" {
			return nil, errNoID // the other orders of the page are closed without it
		}
	}
	return call(ctx, c, closeOrders, func(ctx context.Context) ([]orderclose.Outcome, error) {
		return c.store.CloseOrders(ctx, path, requests)
	})
}

// Probe implements bisect.Prober.
func (c *calls) Probe(ctx context.Context) error {
	_, err := call(ctx, c, "the store's method Probe", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, bisect.Probe(ctx, c.store)
	})
	return err
}

// MaxBatch returns how many orders the store accepts at once.
func (c *calls) MaxBatch() int { return bisect.MaxBatch(c.store) }

// LastSweep implements SweepLog.
func (c *calls) LastSweep(ctx context.Context, name string) (finished, now time.Time, err error) {
	times, err := call(ctx, c, "the log's method LastSweep", func(ctx context.Context) (times [2]time.Time, err error) {
		times[0], times[1], err = c.log.LastSweep(ctx, name)
		return times, err
	})
	return times[0], times[1], err
}

// SweepFinished implements SweepLog.
func (c *calls) SweepFinished(ctx context.Context, name string) error {
	_, err := call(ctx, c, "the log's method SweepFinished", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.log.SweepFinished(ctx, name)
	})
	return err
}

// contractTolerance is by how much the due times of a page may be out of order, and later than the
// given time: a column may hold local times, and clocks pass an hour twice when daylight saving ends.
const contractTolerance = time.Hour

var errNoID = errors.New("the store returned an order without an id")

// checkPage returns an error if a page of orders breaks the contract of Store.Overdue. The
// order of ids is not checked, because each database has its own.
func checkPage(page []orderclose.Order, to time.Time, after orderclose.Order, limit int) error {
	broken := func(format string, args ...any) error {
		return fmt.Errorf("the store's method Overdue returned %s: it must return at most limit orders, ordered by due time and id, that come after the given "+
			"order and are due by the given time",
			fmt.Sprintf(format, args...))
	}
	if len(page) > limit {
		return broken("%d orders, and the limit is %d", len(page), limit)
	}
	last := after
	for _, o := range page {
		switch {
		case o.Due.After(to.Add(contractTolerance)):
			return broken("order %q, due at %s, for orders due by %s", o.ID, stamp(o.Due), stamp(to))
		case o.Due.Before(last.Due.Add(-contractTolerance)):
			return broken("order %q, due at %s, behind order %q, due at %s", o.ID, stamp(o.Due), last.ID, stamp(last.Due))
		case o.ID == after.ID && o.Due.Equal(after.Due):
			return broken("order %q again", o.ID)
		}
		last = o
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// cycleCheck finds a store whose pages begin again, which would never end. It remembers the last
// order of page 1, 2, 4, 8 and so on, and no order may follow itself. The zero value is ready to use.
type cycleCheck struct {
	pages, next int
	known       orderclose.Order
}

// add returns an error if the page has an order of an earlier page.
func (c *cycleCheck) add(page []orderclose.Order) error {
	for _, o := range page {
		if c.pages > 0 && o.ID == c.known.ID && o.Due.Equal(c.known.Due) { //mutant:same-pages-forever
			return fmt.Errorf("the store's method Overdue returned order %q of an earlier page again: a page must begin after the given order", o.ID)
		}
	}
	if c.pages++; c.pages > c.next {
		c.next, c.known = 2*c.pages, page[len(page)-1]
	}
	return nil
}
