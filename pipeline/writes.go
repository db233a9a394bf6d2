package pipeline

import (
	"context"
	"log/slog"
	"slices"
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

// watchWrites probes, until ctx ends, whether the writes of a close succeed. It does
// so beside a closer or compensator that closes in the database. A database may answer
// every read while every close fails, because it is read-only or its tables are locked. A close of
// this process within the last 15 s is as good as a probe, for a minute.
func (a *App) watchWrites(ctx context.Context, roles []Role) {
	closes := slices.Contains(roles, Closer) || slices.Contains(roles, Compensator)
	if !closes || !a.closesInDatabase() || a.conns.Store.Dialect() == store.SQLite {
		return
	}
	var probed time.Time
	w := writeProbe{
		try: func(ctx context.Context) error {
			if a.conns.Store.ClosedWithin(writeProbeInterval) && time.Since(probed) < writeProbeLatest {
				return nil
			}
			probed = time.Now()
			return a.conns.Store.Writable(ctx)
		},
		every: writeProbeInterval, logger: a.o.Logger,
		report: func(failing time.Duration, err error) {
			a.metrics.writesFailing.Set(failing.Seconds())
			if err == nil {
				a.ready.waiting.remove("database writes")
				return
			}
			a.ready.waiting.add("database writes", err.Error())
		},
	}
	w.run(ctx)
}

// closesInDatabase reports whether orders are closed in the database, rather than by
// Options.Store or a service.
func (a *App) closesInDatabase() bool {
	return a.conns.Store != nil && a.o.Store == nil && a.o.Config.Closer.Kind != config.KindHTTP
}

// writeProbe probes the writes of a close periodically. A probe ends before the next one
// starts, so that probes do not pile up while the database hangs.
type writeProbe struct {
	try    func(context.Context) error
	every  time.Duration // from the end of one try to the next
	report func(failing time.Duration, err error)
	logger *slog.Logger
}

func (w writeProbe) run(ctx context.Context) {
	var since time.Time // the first failed probe; zero: the last probe succeeded
	for retry.Sleep(ctx, w.every) {
		err := w.try(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !since.IsZero():
			w.logger.Info("the database accepts writes again", "after", time.Since(since).Round(time.Second))
			since = time.Time{}
		case err != nil && since.IsZero():
			w.logger.Error("the database accepts no writes: no order can be closed", "err", err)
			since = time.Now()
		}
		failing := time.Duration(0)
		if err != nil {
			failing = time.Since(since)
		}
		w.report(failing, err)
	}
}
