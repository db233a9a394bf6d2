package pipeline

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

// clockWarnOffset is the offset between the clocks above which the log has a warning. The
// relay works correctly with any offset.
const clockWarnOffset = time.Second

// keepClock keeps the clock of relays, closers and compensators until ctx ends: by the database if this process has one, else by the brokers.
func (a *App) keepClock(ctx context.Context) {
	against, ask := "kafka", func(ctx context.Context) (time.Time, error) {
		return a.conns.Kafka.Time(ctx, a.o.Config.Topics.Control)
	}
	if a.conns.Store != nil {
		against, ask = "database", a.conns.Store.Now
	}
	a.clock.Keep(ctx, ask, func(offset time.Duration) {
		a.metrics.clockOffset.WithLabelValues(against).Set(offset.Seconds())
		if offset.Abs() > clockWarnOffset {
			a.o.Logger.Warn("the clock of this machine differs from the one by which orders are due: fix the time synchronisation", "of", against, "ahead", offset)
		}
	}, a.o.Logger)
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
