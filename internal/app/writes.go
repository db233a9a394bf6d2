package app

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"orderclose/internal/config"
	"orderclose/internal/partition"
	"orderclose/internal/store"
)

// writesEvery is how often a closer or a compensator tries whether a close could be
// written.
const writesEvery = 15 * time.Second

// watchWrites tries the writes of a close beside a closer or a compensator that closes in
// the database, and returns what ends that. A database may answer each read while every
// close fails, since it is read-only or somebody has locked its tables.
func (a *App) watchWrites(ctx context.Context, roles []Role) (stop func()) {
	closes := slices.Contains(roles, Closer) || slices.Contains(roles, Compensator)
	if !closes || a.o.Store == nil || a.o.Config.Closer.Kind == config.KindHTTP || a.o.Store.Dialect() == store.SQLite {
		return func() {}
	}
	w := writes{
		try: a.o.Store.Writable, every: writesEvery, logger: a.o.Logger,
		tell: func(failing time.Duration, err error) {
			a.metrics.DatabaseWriteFailing(failing)
			if err == nil {
				a.ready.Done("database writes")
				return
			}
			a.ready.Wait("database writes", err.Error())
		},
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { w.run(ctx) })
	return func() {
		cancel()
		watching.Wait()
	}
}

// writes asks again and again whether a close could be written. One try ends before the
// next begins: however long the database hangs, nothing piles up.
type writes struct {
	try    func(context.Context) error
	every  time.Duration // from the end of one try to the next
	tell   func(failing time.Duration, err error)
	logger *slog.Logger
}

func (w writes) run(ctx context.Context) {
	var since time.Time // of the first failure; zero: the last try succeeded
	for partition.Sleep(ctx, w.every) {
		err := w.try(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !since.IsZero():
			w.logger.Info("the database takes writes again", "after", time.Since(since).Round(time.Second))
			since = time.Time{}
		case err != nil && since.IsZero():
			w.logger.Error("the database takes no writes: no order can be closed", "err", err)
			since = time.Now()
		}
		failing := time.Duration(0)
		if err != nil {
			failing = time.Since(since)
		}
		w.tell(failing, err)
	}
}
