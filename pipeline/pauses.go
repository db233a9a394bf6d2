package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// pauseInterval is how old the known pauses may be before a close reads them again, and
	// pauseTimeout bounds one read. A pause is honoured within their sum.
	pauseInterval = time.Second
	pauseTimeout  = time.Second
	// pauseRetry is the time after a failed read in which the known pauses count.
	pauseRetry = 10 * time.Second
	// pauseMetricInterval is the interval between two updates of the metric and of the kept pause, and pauseTableInterval that
	// of the metric alone, each of which is a statement.
	pauseMetricInterval = 5 * time.Second
	pauseTableInterval  = 15 * time.Second
)

// pausedStore is a closer.Store that obeys the pauses in the control topic. The store of the database
// has its own pauses, which each transaction reads.
type pausedStore struct {
	bisect.Wrapped
	now     func() time.Time
	logger  *slog.Logger
	ignored func(float64) // sets the metric: 1 while sweeps go on without known pauses
	name    string        // of the sweeps
	keeper  pauseKeeper   // nil: pauses are not kept

	kept   time.Time // what keeper has; used by one goroutine
	keptAt time.Time

	mu           turn // is held during a read of Kafka
	control      *ops.Control
	on           []wire.Pause
	known        bool      // the pauses were read before
	fresh        time.Time // until then they are not read again
	unread       error     // why they could not be read
	unknownSince time.Time // since when a sweep waits for them
}

// turn is a mutex that a simulation in virtual time can wait for. Make it with capacity 1.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// CloseOrders implements closer.Store. It closes nothing before the pauses were read once; checkSweep
// says when a sweep does.
func (s *pausedStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	on, err := s.read(ctx, path == orderclose.PathSweep)
	switch {
	case err != nil && path == orderclose.PathSweep && ctx.Err() == nil:
		if err := s.checkSweep(ctx, err); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, unavailable(err)
	}
	for _, p := range on {
		if p.Path == path {
			return nil, pausedError(p)
		}
	}
	return s.Store.CloseOrders(ctx, path, requests)
}

// read returns the pauses that are on, at most pauseInterval old. If they cannot be read, the pauses
// that were read last count. It returns an error if they were never read. Then a sweep does not try
// again for pauseRetry, so that the pages of a sweep without Kafka do not wait for Kafka.
func (s *pausedStore) read(ctx context.Context, sweep bool) ([]wire.Pause, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(s.fresh) || !s.known && !sweep {
		limited, cancel := context.WithTimeout(ctx, pauseTimeout)
		defer cancel()
		state, err := s.control.Read(limited, s.now())
		switch {
		case err == nil:
			s.on, s.known, s.fresh = state.Pauses, true, time.Now().Add(pauseInterval)
			s.ignored(0)
		case ctx.Err() == nil:
			s.unread, s.fresh = err, time.Now().Add(pauseRetry)
		case !s.known:
			return nil, err
		}
	}
	if !s.known {
		return nil, s.unread
	}
	now := s.now()
	return slices.DeleteFunc(slices.Clone(s.on), func(p wire.Pause) bool { return !p.Until.After(now) }), nil
}

// withPauses returns the method with pauses from the control topic, unless the store has its own. A
// compensator without Kafka cannot be paused.
func (a *App) withPauses(method closeMethod) closeMethod {
	if a.closesInDatabase() || a.conns.Kafka == nil {
		return method
	}
	method.store = &pausedStore{
		Wrapped: bisect.Wrapped{Store: method.store}, now: a.clock.Broker, logger: a.o.Logger, ignored: a.metrics.pausesIgnored.Set,
		mu: make(turn, 1), name: a.o.Config.Topics.Close,
		control: ops.NewControl(a.conns.Kafka, a.o.Config.Topics.Control), keeper: a.pauseKeeper(),
	}
	return method
}

// knownPauses returns the pauses that are on, by any path, for the keeper of a compensator. If they are not known, it returns an error for as
// long as sweeps wait for them.
func (a *App) knownPauses(ctx context.Context) ([]wire.Pause, error) {
	method, err := a.closeMethodOnce()
	if err != nil {
		return nil, err
	}
	if s, ok := method.store.(*pausedStore); ok {
		on, err := s.read(ctx, true)
		if err != nil {
			err = s.checkSweep(ctx, err)
		}
		return on, err
	}
	if a.closesInDatabase() {
		return a.conns.Store.Pauses(ctx)
	}
	return nil, nil
}

// watchPauses updates the metric of the pauses until ctx ends. Beside a compensator, which sweeps, it also keeps
// the pause of sweeps.
func (a *App) watchPauses(ctx context.Context, sweeps bool) {
	method, err := a.closeMethodOnce()
	if err != nil {
		return // the role reports it
	}
	interval := pauseMetricInterval
	read, keep := func(context.Context) ([]wire.Pause, error) { return nil, nil }, func(context.Context, []wire.Pause) {}
	if s, ok := method.store.(*pausedStore); ok {
		read = func(ctx context.Context) ([]wire.Pause, error) { return s.read(ctx, false) }
		if sweeps {
			keep = s.keep
		}
	} else if a.closesInDatabase() {
		read, interval = a.conns.Store.Pauses, pauseTableInterval
	}
	for retry.Sleep(ctx, interval) {
		if on, err := read(ctx); err == nil { // else another metric reports the failure
			a.metrics.Paused(on)
			keep(ctx, on)
		}
	}
}
