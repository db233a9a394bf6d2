package console

import (
	"context"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/wire"
)

// waitKnown is how long a page waits for a newer value if it has an older one, and waitFirst if it
// has none.
const (
	waitKnown = 200 * time.Millisecond
	waitFirst = 5 * time.Second
)

// source is a value that a server tells. A page that needs it fetches it, if the last value is older
// than the field every. All pages share the value: more viewers send no more requests.
type source[T any] struct {
	every time.Duration
	limit time.Duration // of one fetch
	fetch func(context.Context) (T, error)

	mu      sync.Mutex
	last    known[T]
	tried   time.Time     // when the last fetch ended
	running chan struct{} // closed when the present fetch ends; nil: none runs
}

func every[T any](interval, limit time.Duration, fetch func(context.Context) (T, error)) source[T] {
	return source[T]{every: interval, limit: limit, fetch: fetch}
}

// makeSources makes the sources. A status costs Kafka some requests for each partition, a forecast and
// the chart of a replay one for each step and leader. With a status each 5 s an open page cost 1.7 % of a core
// while a million records waited (make bench-console).
func (c *Console) makeSources() {
	const soon, often, seldom, limit = 5 * time.Second, 10 * time.Second, time.Minute, 30 * time.Second
	var before ops.Status
	c.status = every(often, limit, func(ctx context.Context) (ops.Status, error) {
		s, err := c.pipeline().Status(ctx)
		s.Follow(before)
		if before = s; err == nil {
			c.trend.add(s, c.o.Config().Topics)
		}
		return s, err
	})
	c.forecast = every(seldom, limit, func(ctx context.Context) (ops.Forecast, error) { return c.pipeline().Forecast(ctx, forecastEdges()) })
	c.lateness = every(seldom, limit, func(ctx context.Context) (ops.Lateness, error) { return c.pipeline().Lateness(ctx, latenessHorizon) })
	c.sweeps = every(often, limit, func(ctx context.Context) (ops.Sweeps, error) { return c.pipeline().Sweeps(ctx, 0) })
	c.topics = every(seldom, limit, func(ctx context.Context) (ops.TopicsPlan, error) { return c.pipeline().TopicsPlan(ctx) })
	c.appended = every(seldom, limit, func(ctx context.Context) (ops.Appended, error) {
		return c.pipeline().Appended(ctx, replayHorizon, replaySteps)
	})
	c.pauses = every(soon, soon, func(ctx context.Context) ([]wire.Pause, error) {
		kept, err := c.pipeline().Pauser()
		if err != nil {
			return nil, err
		}
		return kept.Pauses(ctx)
	})
	c.database = every(soon, soon, func(ctx context.Context) (ops.OverdueOrders, error) { return c.pipeline().OverdueOrders(ctx) })
	c.writes = every(soon, often, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.pipeline().Writable(ctx) })
	c.lock = every(soon, soon, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.pipeline().Lockable(ctx) })
	c.offset = every(seldom, soon, func(ctx context.Context) (time.Duration, error) {
		if c.o.Store == nil {
			return 0, nil
		}
		return ops.DatabaseOffset(ctx, c.o.Store.Now)
	})
	c.broken = every(often, soon, func(context.Context) (struct{}, error) {
		if c.o.ConfigBroken == nil {
			return struct{}{}, nil
		}
		return struct{}{}, c.o.ConfigBroken()
	})
}

// known is the last value of a source, and why there is no newer one.
type known[T any] struct {
	Value T
	At    time.Time // when it was fetched; zero: never
	Err   error     // of the fetches since then; nil: the value is as new as it should be
	Since time.Time // the first of these errors
}

// fault returns why there is no newer value.
func (k known[T]) fault() ops.Fault { return ops.Fault{Err: k.Err, Since: k.Since} }

// Away reports whether the server does not answer.
func (k known[T]) Away() bool { return k.Err != nil }

// Known reports whether there is a value.
func (k known[T]) Known() bool { return !k.At.IsZero() }

// get returns the value. It first fetches a new value if the last one is too old. It waits for the
// fetch for waitKnown or waitFirst, and then returns the last value. The fetch goes on, and the next
// call of get returns its result. The context ends stops all fetches.
func (s *source[T]) get(ctx, ends context.Context) known[T] {
	s.mu.Lock()
	if s.running == nil {
		if time.Since(s.tried) < s.every || ends.Err() != nil {
			defer s.mu.Unlock()
			return s.last
		}
		s.running = make(chan struct{})
		go s.refresh(ends)
	}
	running, wait := s.running, waitFirst
	if s.last.Known() || s.last.Away() {
		wait = waitKnown
	}
	s.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-running:
	case <-late.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// forget makes the next get fetch a new value, such as after an action.
func (s *source[T]) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Time{}
}

func (s *source[T]) refresh(ends context.Context) {
	ctx, cancel := context.WithTimeout(ends, s.limit)
	defer cancel()
	v, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil:
		s.last = known[T]{Value: v, At: now}
	case s.last.Err == nil:
		s.last.Err, s.last.Since = err, now
	default:
		s.last.Err = err
	}
	s.tried = now
	close(s.running)
	s.running = nil
}
