package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
)

// writeProbeInterval is the pause between two write probes of a closer or compensator.
const writeProbeInterval = 15 * time.Second

// writeProbeLatest is the longest time without a probe. Closes of other orders do not show that a table of
// a month is locked.
const writeProbeLatest = time.Minute

// watchWrites probes, until ctx ends, whether the writes of a close in the database succeed. A database may answer
// every read while every close fails, because it is read-only or its tables are locked. A close of
// this process within the last 15 s is as good as a probe, for a minute.
func (a *App) watchWrites(ctx context.Context) {
	if !a.closesInDatabase() || a.conns.Store.Dialect() == store.SQLite {
		return
	}
	var probed time.Time
	try := func(ctx context.Context) error {
		if a.conns.Store.ClosedWithin(writeProbeInterval) && time.Since(probed) < writeProbeLatest {
			return nil
		}
		probed = time.Now()
		return a.conns.Store.Writable(ctx)
	}
	probeWrites(ctx, a.o.Logger, try, func(failing time.Duration, err error) {
		a.metrics.writesFailing.Set(failing.Seconds())
		if err == nil {
			a.ready.waiting.remove("database writes")
			return
		}
		a.ready.waiting.add("database writes", err.Error())
	})
}

// closesInDatabase reports whether orders are closed in the database, rather than by
// Options.Store or a service.
func (a *App) closesInDatabase() bool {
	return a.conns.Store != nil && a.o.Store == nil && a.o.Config.Closer.Kind != config.KindHTTP
}

// probeWrites calls try, writeProbeInterval after the last try has ended, until ctx ends. So tries do not pile up while the
// database hangs. It reports since when they have failed, and the last error.
func probeWrites(ctx context.Context, logger *slog.Logger, try func(context.Context) error, report func(failing time.Duration, err error)) {
	var since time.Time // the first failed try; zero: the last one succeeded
	for retry.Sleep(ctx, writeProbeInterval) {
		err, failing := try(ctx), time.Duration(0)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !since.IsZero():
			logger.Info("the database accepts writes again", "after", time.Since(since).Round(time.Second))
			since = time.Time{}
		case err != nil && since.IsZero():
			logger.Error("the database accepts no writes: no order can be closed", "err", err)
			since = time.Now()
		case err != nil:
			failing = time.Since(since)
		}
		report(failing, err)
	}
}
