package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
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
	// pauseMetricInterval is the interval between two updates of the metric.
	pauseMetricInterval = 5 * time.Second
)

// pausedStore is a closer.Store that obeys the pauses in the control topic. The store of the database
// has its own pauses, which each transaction reads.
type pausedStore struct {
	closer.Store
	now func() time.Time

	mu      sync.Mutex
	control *ops.Control
	on      []wire.Pause
	known   bool      // the pauses were read before
	fresh   time.Time // until then they are not read again
}

// CloseOrders implements closer.Store. It closes nothing before the pauses were read once.
func (s *pausedStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	on, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrStoreDown, err)
	}
	for _, p := range on {
		if p.Path == path {
			return nil, fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrStoreDown, p.Err())
		}
	}
	return s.Store.CloseOrders(ctx, path, requests)
}

// read returns the pauses that are on, at most pauseInterval old. If they cannot be read, the pauses
// that were read last count. It returns an error if they were never read.
func (s *pausedStore) read(ctx context.Context) ([]wire.Pause, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(s.fresh) {
		ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
		defer cancel()
		state, err := s.control.Read(ctx, s.now())
		switch {
		case err == nil:
			s.on, s.known, s.fresh = state.Pauses, true, time.Now().Add(pauseInterval)
		case !s.known:
			return nil, err
		default:
			s.fresh = time.Now().Add(pauseRetry)
		}
	}
	now := s.now()
	return slices.DeleteFunc(slices.Clone(s.on), func(p wire.Pause) bool { return !p.Until.After(now) }), nil
}

// Probe reports whether the store works.
func (s *pausedStore) Probe(ctx context.Context) error {
	if p, ok := s.Store.(bisect.Prober); ok {
		return p.Probe(ctx)
	}
	return errors.ErrUnsupported
}

// MaxBatch returns how many orders the store accepts at once.
func (s *pausedStore) MaxBatch() int { return bisect.MaxBatch(s.Store) }

// withPauses returns the method with pauses from the control topic, unless the store has its own. A
// compensator without Kafka cannot be paused.
func (a *App) withPauses(method closeMethod) closeMethod {
	if a.closesInDatabase() || a.conns.Kafka == nil {
		return method
	}
	now := a.o.Now
	if now == nil {
		now = time.Now
	}
	method.store = &pausedStore{Store: method.store, now: now, control: ops.NewControl(a.conns.Kafka, a.o.Config.Topics.Control)}
	return method
}

// watchPauses updates the metric of the pauses, beside a closer or compensator, until stop is called.
func (a *App) watchPauses(ctx context.Context, roles []Role) (stop func()) {
	if !slices.Contains(roles, Closer) && !slices.Contains(roles, Compensator) {
		return func() {}
	}
	method, err := a.closeMethodOnce()
	if err != nil {
		return func() {} // the role reports it
	}
	read := func(context.Context) ([]wire.Pause, error) { return nil, nil }
	if s, ok := method.store.(*pausedStore); ok {
		read = s.read
	} else if a.closesInDatabase() {
		read = a.conns.Store.Pauses
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for retry.Sleep(ctx, pauseMetricInterval) {
			if on, err := read(ctx); err == nil { // else another metric reports the failure
				a.metrics.Paused(on)
			}
		}
	})
	return func() { cancel(); watching.Wait() }
}
