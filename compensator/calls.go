package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// callTimeout is how long one call of a Store, Reader or SweepLog may take.
	callTimeout = 10 * time.Second
	// stopTimeout is how long a call may ignore the end of its context before the process is
	// better restarted.
	stopTimeout = 10 * time.Second
	// closeOrders names the calls whose panics internal/bisect logs: it repeats them to find the order at fault.
	closeOrders = "the store's method CloseOrders"
)

// calls limits the time of calls of the user's code, and turns panics into errors. It is safe for concurrent use.
type calls struct {
	onHang func(why string)
	logger *slog.Logger
}

// call calls f, which what names. If f does not answer within the limit, the error wraps orderclose.ErrUnavailable. If f ignores
// the end of its context too, call calls onHang.
func (c *calls) call(ctx context.Context, what string, limit time.Duration, f func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.within(callTimeout+stopTimeout, what, func() error { return f(limited) })
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %s: no answer within %v: %w", orderclose.ErrUnavailable, what, limit, err)
	}
	return err
}

// within calls f, and logs a panic. If f takes longer than the limit, within calls onHang.
func (c *calls) within(limit time.Duration, what string, f func() error) error {
	hang := time.AfterFunc(limit, func() { c.onHang(what + " hangs") }) //mutant:sweep-call-waits
	defer hang.Stop()
	err := retry.Catch(f)
	if p, ok := errors.AsType[*retry.PanicError](err); ok && what != closeOrders {
		c.logger.Error("code of this program panicked, which counts as an error", "call", what, "err", err, "stack", p.Stack)
	}
	return err
}
