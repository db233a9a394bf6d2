package compensator

import (
	"context"
	"hash/fnv"
	"sync"
	"time"
)

// maxPollInterval is the longest time between two questions to the database whether a
// sweep is due. Together with the lock's expiry it bounds the take-over of a killed
// sweep: two minutes.
const maxPollInterval = time.Minute

// maxJitter is the longest time by which sweeps begin after the full period.
const maxJitter = time.Minute

// schedule decides when sweeps are due: at each full period of the database's clock,
// such as each full hour, plus a jitter. All processes of a pipeline have the same
// jitter. Other pipelines on the same database have another one. Pure.
type schedule struct {
	period, jitter time.Duration
}

// newSchedule derives the jitter from the pipeline's name: up to a minute, and up to
// a tenth of the period.
func newSchedule(period time.Duration, name string) schedule {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // cannot fail
	most := min(maxJitter, period/10)
	return schedule{period, time.Duration(h.Sum64() % uint64(max(most, 1))).Truncate(time.Millisecond)}
}

// pollInterval returns the time between two questions: a minute, or a fifth of the
// period if that is shorter.
func (s schedule) pollInterval() time.Duration {
	return min(maxPollInterval, max(s.period/5, time.Millisecond))
}

// slot returns the last time, up to now, at which a sweep was to begin.
func (s schedule) slot(now time.Time) time.Time {
	return now.Add(-s.jitter).Truncate(s.period).Add(s.jitter)
}

// due reports whether a sweep is to begin: the last one finished before the slot, or
// never (zero). A finish time that is far ahead of now came from a wrong clock and is
// ignored.
func (s schedule) due(finished, now time.Time) bool {
	return finished.Before(s.slot(now)) || finished.After(now.Add(s.pollInterval())) //mutant:future-finish-blocks
}

// wait returns the time until the next question, or until the next slot if that is
// sooner.
func (s schedule) wait(now time.Time) time.Duration {
	return min(s.pollInterval(), s.slot(now).Add(s.period).Sub(now))
}

// passed returns the number of slots after one time, up to another.
func (s schedule) passed(after, to time.Time) int {
	return int(max(s.slot(to).Sub(s.slot(after)), 0) / s.period)
}

// ownLog is a SweepLog in memory, for one process.
type ownLog struct {
	clock interface {
		Now(ctx context.Context) (time.Time, error)
	}
	mu       sync.Mutex
	finished map[string]time.Time // by name
}

// LastSweep implements SweepLog.
func (l *ownLog) LastSweep(ctx context.Context, name string) (finished, now time.Time, err error) {
	now, err = l.clock.Now(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished[name], now, err
}

// SweepFinished implements SweepLog.
func (l *ownLog) SweepFinished(ctx context.Context, name string) error {
	now, err := l.clock.Now(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished[name] = now
	return nil
}
