package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// pauseKeeper keeps until when sweeps are paused, for compensators that start while Kafka is down. The
// database does, beside the times of the sweeps; otherwise Redis does.
type pauseKeeper interface {
	// KeepPause stores the time; a time that is over means that no pause is on.
	KeepPause(ctx context.Context, name string, until time.Time) error
	// KeptPause returns the time that KeepPause stored last. If there is none, known is false.
	KeptPause(ctx context.Context, name string) (until time.Time, known bool, err error)
}

// pauseKeeper returns where the pauses of sweeps are kept; nil: nowhere.
func (a *App) pauseKeeper() pauseKeeper {
	source, _ := a.sweepSource() // nil: a sweep reports it
	if k, ok := source.(pauseKeeper); ok {
		return k
	}
	if a.conns.Redis == nil {
		return nil
	}
	return redisPauses{a.conns.Redis, a.o.Config.Compensator.Lock.Key + "-pause-"}
}

// redisPauses keeps the pause in a key without expiry.
type redisPauses struct {
	client redis.UniversalClient
	prefix string // of the key
}

// KeepPause implements pauseKeeper.
func (r redisPauses) KeepPause(ctx context.Context, name string, until time.Time) error {
	return r.client.Set(ctx, r.prefix+name, until.UTC().Format(time.RFC3339Nano), 0).Err()
}

// KeptPause implements pauseKeeper.
func (r redisPauses) KeptPause(ctx context.Context, name string) (until time.Time, known bool, err error) {
	value, err := r.client.Get(ctx, r.prefix+name).Result()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, false, nil
	}
	if err == nil {
		until, err = time.Parse(time.RFC3339Nano, value)
	}
	return until, err == nil, err
}

// keepPauseInterval is how often the pause of sweeps is stored while it does not change.
const keepPauseInterval = time.Minute

// keep stores until when sweeps are paused, if that has changed or was stored a minute ago.
func (s *pausedStore) keep(ctx context.Context, on []wire.Pause) {
	if s.keeper == nil {
		return
	}
	until := time.Time{}
	for _, p := range on {
		if p.Path == orderclose.PathSweep {
			until = p.Until
		}
	}
	if until.Equal(s.kept) && time.Since(s.keptAt) < keepPauseInterval {
		return
	}
	stored := until
	if until.IsZero() {
		stored = s.now()
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := s.keeper.KeepPause(ctx, s.name, stored); err != nil {
		s.logger.Warn("pauses cannot be kept for a restart without Kafka, will retry", "err", err)
		return
	}
	s.kept, s.keptAt = until, time.Now()
}

// unknownPausesWait is how long sweeps wait if neither Kafka nor the copy tells whether they are paused: long enough for a restart
// of either, and short beside the time for which orders would stay open. Who wants no sweep then stops the compensators.
const unknownPausesWait = 10 * time.Minute

// checkSweep returns an error unless a sweep may go on although the control topic cannot be read, and
// was never read by this process: the kept pause is over; or there is none, and the wait is over.
func (s *pausedStore) checkSweep(ctx context.Context, unread error) error {
	err := errors.New("no copy of them is kept")
	if s.keeper != nil {
		ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
		defer cancel()
		until, known, failed := s.keeper.KeptPause(ctx, s.name)
		switch {
		case known && until.After(s.now()): //mutant:kept-pause-ignored
			return pausedError(wire.Pause{Until: until, Reason: "a pause that was read before Kafka failed"})
		case known && s.now().Sub(until) < 5*keepPauseInterval: // without a pause it is the time at which it was kept
			s.ignored(0)
			return nil
		case known:
			err = fmt.Errorf("the copy of them is old: it was stored at %s", until.UTC().Format(time.RFC3339))
		case failed != nil:
			err = fmt.Errorf("the copy of them cannot be read: %w", failed)
		}
	}
	s.mu.Lock()
	if s.unknownSince.IsZero() {
		s.unknownSince = time.Now()
	}
	left := unknownPausesWait - time.Since(s.unknownSince)
	s.mu.Unlock()
	err = fmt.Errorf("the pauses are unknown: %w; and %w", unread, err)
	if left > 0 { //mutant:no-copy-sweepless
		return unavailable(fmt.Errorf("sweeps go on without them in %v: %w", left.Round(time.Second), err))
	}
	s.logger.Error("sweeping without knowing whether an operator has paused it", "waited", unknownPausesWait, "err", err)
	s.ignored(1)
	return nil
}

func pausedError(p wire.Pause) error { return unavailable(p.Err()) }

// unavailable returns an error that blames no order.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, err)
}
