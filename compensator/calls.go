package compensator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/retry"
)

// hangTimeout is after how long a call of a Store, Reader or SweepLog hangs: it has ignored the end of its context for 10 s.
const hangTimeout = bisect.CallTimeout + 10*time.Second

// calls makes calls of the user's code, and turns panics into errors. It is safe for concurrent use.
type calls struct {
	onHang func(why string)
	logger *slog.Logger
}

// call calls f, which what names, with the limit bisect.CallTimeout. If f ignores the end of its context, call calls onHang.
func (c *calls) call(ctx context.Context, what string, f func(ctx context.Context) error) error {
	return c.within(hangTimeout, what, func() error { return bisect.Within(ctx, bisect.CallTimeout, f) })
}

// within calls f, and logs a panic. If f takes longer than the limit, within calls onHang.
func (c *calls) within(limit time.Duration, what string, f func() error) error {
	hang := time.AfterFunc(limit, func() { c.onHang(what + " hangs") }) //mutant:sweep-call-waits
	defer hang.Stop()
	err := retry.Catch(f)
	if p, ok := errors.AsType[*retry.PanicError](err); ok {
		c.logger.Error("code of this program panicked, which counts as an error", "call", what, "err", err, "stack", p.Stack)
	}
	return err
}
