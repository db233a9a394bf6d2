package compensator

import (
	"hash/fnv"
	"time"
)

// askEvery is how often the database is asked whether a sweep is due, at least.
// With the lock's expiry it is what a killed sweep costs: two minutes.
const askEvery = time.Minute

// maxJitter bounds by how much sweeps begin after the full period.
const maxJitter = time.Minute

// schedule says when sweeps are due: at each full period of the database's clock,
// each full hour, and a jitter. Every process of a pipeline has the same jitter, so
// that they agree; other pipelines on the same database have others. Pure.
type schedule struct {
	period, jitter time.Duration
}

// newSchedule takes the jitter from the pipeline's name: up to a minute, and up to
// a tenth of the period.
func newSchedule(period time.Duration, name string) schedule {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // cannot fail
	most := min(maxJitter, period/10)
	return schedule{period, time.Duration(h.Sum64() % uint64(max(most, 1))).Truncate(time.Millisecond)}
}

// ask is how often to ask: each minute, five times a period if that is shorter.
func (s schedule) ask() time.Duration { return min(askEvery, max(s.period/5, time.Millisecond)) }

// slot is the last moment, up to now, when a sweep was to begin.
func (s schedule) slot(now time.Time) time.Time {
	return now.Add(-s.jitter).Truncate(s.period).Add(s.jitter)
}

// due says whether a sweep is to begin: the last one was finished before the slot,
// zero is never. One that is far ahead of the present was noted by a clock that was
// wrong, and counts for nothing.
func (s schedule) due(finished, now time.Time) bool {
	return finished.Before(s.slot(now)) || finished.After(now.Add(s.ask()))
}

// wait is how long to wait until the next question: until the next slot, if that is
// sooner than a question is due.
func (s schedule) wait(now time.Time) time.Duration {
	return min(s.ask(), s.slot(now).Add(s.period).Sub(now))
}

// passed is how many slots there were after one moment, up to another.
func (s schedule) passed(after, to time.Time) int {
	return int(max(s.slot(to).Sub(s.slot(after)), 0) / s.period)
}
