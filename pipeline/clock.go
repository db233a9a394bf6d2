package pipeline

import (
	"context"
	"time"
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
