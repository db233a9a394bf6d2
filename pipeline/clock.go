package pipeline

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// clockWarnOffset is the offset between the clocks above which the log has a warning. The relay works correctly with any offset.
	clockWarnOffset = time.Second
	// acksInterval is the time between two reports of what the acks of brokers say of their clocks.
	acksInterval = 30 * time.Second
)

// keepClock keeps the clock of relays, closers and compensators until ctx ends: by the database if this process has one, else by what brokers
// answer to its appends.
func (a *App) keepClock(ctx context.Context) {
	measured := func(against string, offset time.Duration) {
		a.metrics.clockOffset.WithLabelValues(against).Set(offset.Seconds())
		if offset.Abs() > clockWarnOffset {
			a.o.Logger.Warn("the clock of this machine differs from the one by which orders are due: fix the time synchronisation", "of", against, "ahead", offset)
		}
	}
	if a.conns.Store != nil {
		a.clock.Keep(ctx, a.conns.Store.Now, func(offset time.Duration) { measured("database", offset) }, a.o.Logger)
		return
	}
	for retry.Sleep(ctx, acksInterval) {
		measured("kafka", a.clock.Ahead())
	}
}

// skewsInterval is the time between two reports of wrong clocks, and skewsLogged that between two lines of the log about one.
const (
	skewsInterval = 5 * time.Second
	skewsLogged   = 10 * time.Minute
)

// watchSkews shows until ctx ends which clocks of checkouts are wrong.
func (a *App) watchSkews(ctx context.Context) {
	logged := map[string]time.Time{}
	for ctx.Err() == nil {
		a.skews.Know(a.config().Delays)
		found := a.skews.Found()
		a.metrics.Skews(found)
		for _, s := range found {
			if time.Since(logged[s.Place]) >= skewsLogged {
				logged[s.Place] = time.Now()
				a.o.Logger.Error("a checkout creates orders by a wrong clock: fix its time synchronisation, and compute due times from the database's clock",
					"seen_by", s.Place, "ahead", s.Ahead, "orders", s.Orders, "order", s.Order)
			}
		}
		retry.Sleep(ctx, skewsInterval)
	}
}
