package pipeline

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/clock"
)

// clockWarnOffset is the offset between the clocks above which the log has a warning. The
// relay works correctly with any offset.
const clockWarnOffset = time.Second

// keepClock keeps the clocks for relays and closers until ctx ends.
func (a *App) keepClock(ctx context.Context) {
	o := clock.KeepOptions{Log: a.conns.Kafka, Topic: a.o.Config.Topics.Control, Measured: a.onClockOffset, Logger: a.o.Logger}
	if a.conns.Store != nil {
		o.Database = a.conns.Store.Now
	}
	a.clock.Keep(ctx, o)
}

func (a *App) onClockOffset(offset time.Duration) {
	a.metrics.clockOffset.WithLabelValues("kafka").Set(offset.Seconds())
	if offset.Abs() > clockWarnOffset {
		a.o.Logger.Warn("the brokers' clock and the clock of this machine differ: fix the time synchronisation", "ahead", offset)
	}
	if ahead := a.clock.DatabaseAhead(); ahead != 0 {
		a.o.Logger.Warn("the database's clock and the brokers' clock differ: records are released by the database's", "ahead", ahead)
	}
}
