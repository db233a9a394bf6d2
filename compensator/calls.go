package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// callTimeout is how long one call of a Store or SweepLog may take, and how long a Lock may take to begin.
	callTimeout = 10 * time.Second
	// stopTimeout is how long a call may ignore the end of its context before the process is
	// better restarted.
	stopTimeout = 10 * time.Second
)

// calls is the Store, Reader and SweepLog that a Compensator uses: those of the user. It limits the time of
// each call, and turns panics into errors. It is safe for concurrent use.
type calls struct {
	store  Store
	reader Reader
	log    SweepLog // nil: nothing is kept
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

// within runs f as catch does. If f takes longer than the limit, within calls onHang.
func (c *calls) within(limit time.Duration, what string, f func() error) error {
	hang := time.AfterFunc(limit, func() { c.onHang(what + " hangs") })
	defer hang.Stop()
	return c.catch(what, f)
}

// Now implements Store.
func (c *calls) Now(ctx context.Context) (time.Time, error) {
	return call(ctx, c, "the store's method Now", c.store.Now)
}

// Overdue implements Store.
func (c *calls) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	return call(ctx, c, "the store's method Overdue", func(ctx context.Context) ([]orderclose.Order, error) {
		return c.store.Overdue(ctx, cutoff, after, limit)
	})
}

var errNoID = errors.New("the store returned an order without an id")

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

// BeginTurn implements Reader.
func (c *calls) BeginTurn(ctx context.Context, w overdue.Window) (overdue.Begin, error) {
	return call(ctx, c, "the reader's method BeginTurn", func(ctx context.Context) (overdue.Begin, error) { return c.reader.BeginTurn(ctx, w) })
}

// ReadOverdue implements Reader.
func (c *calls) ReadOverdue(ctx context.Context, w overdue.Window) (overdue.Found, error) {
	return call(ctx, c, "the reader's method ReadOverdue", func(ctx context.Context) (overdue.Found, error) { return c.reader.ReadOverdue(ctx, w) })
}

// SweepHour implements SweepLog.
func (c *calls) SweepHour(ctx context.Context, pipeline string, begin time.Time) (overdue.Hour, error) {
	if c.log == nil {
		return overdue.Hour{Begin: begin}, nil
	}
	return call(ctx, c, "the log's method SweepHour", func(ctx context.Context) (overdue.Hour, error) { return c.log.SweepHour(ctx, pipeline, begin) })
}

// AddSweep implements SweepLog.
func (c *calls) AddSweep(ctx context.Context, pipeline string, begin time.Time, n overdue.Counts) error {
	return c.keep(ctx, "the log's method AddSweep", func(ctx context.Context) error { return c.log.AddSweep(ctx, pipeline, begin, n) })
}

// EndSweep implements SweepLog.
func (c *calls) EndSweep(ctx context.Context, pipeline string, begin time.Time, state string, took time.Duration) error {
	return c.keep(ctx, "the log's method EndSweep", func(ctx context.Context) error { return c.log.EndSweep(ctx, pipeline, begin, state, took) })
}

// keep calls the SweepLog, if there is one.
func (c *calls) keep(ctx context.Context, what string, f func(ctx context.Context) error) error {
	if c.log == nil {
		return nil
	}
	_, err := call(ctx, c, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}
