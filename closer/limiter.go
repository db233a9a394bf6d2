package closer

import "time"

// limiter bounds how many orders may be in transactions at once. A transaction that takes longer than the target time halves the limit, down
// to a tenth of a batch, and no lower than leastOrders. Ten others double it. At a store that is slow for calls of any size, the smallest
// calls still go on side by side. If the store is unavailable, the limit falls to its minimum, so that a backlog starts slowly.
//
// A limiter holds no lock and reads no clock.
type limiter struct {
	target             time.Duration
	minLimit, maxLimit int
	first              int // the limit of a closer that starts
	limit              int
	quick              int       // quick transactions under this limit; quickToGrow raise it
	changed            time.Time // when the limit last changed
}

const (
	// quickToGrow is the number of quick transactions after which the limit grows.
	quickToGrow = 10
	// leastOrders go together whatever they take: fewer would hardly take less, but for a store of which each order takes 5 ms.
	leastOrders = 50
)

// newLimiter returns the limiter for workers that close batches of the given size. The limit begins with a batch for
// each slot: the first backlog is closed as fast as later ones.
func newLimiter(target time.Duration, batch, workers int) limiter {
	first := batch * min(quickSlots, workers)
	return limiter{target: target, minLimit: max(batch/10, min(batch, leastOrders)), maxLimit: batch * workers, first: first,
		limit: first}
}

// sample is a transaction that succeeded.
type sample struct {
	inFlight int // orders in transactions when it ended, its own included
	began    time.Time
	took     time.Duration
}

// observe updates the limit after a transaction.
//
// A transaction that began before the limit last changed ran under another one, and says nothing about this one. A transaction that ran
// while less than half of the limit was in use does not show that more orders would take no longer. It raises the limit by a step, and
// only up to the one of a closer that starts, which has no such proof either.
func (l *limiter) observe(s sample) {
	grown, most := 2*l.limit, l.maxLimit
	if 2*s.inFlight < l.limit {
		grown, most = l.limit+l.minLimit, l.first
	}
	switch {
	case s.began.Before(l.changed):
	case s.took > l.target:
		l.limit, l.quick, l.changed = max(l.limit/2, l.minLimit), 0, s.began.Add(s.took) //mutant:slow-call-ignored
	case l.limit < most:
		if l.quick++; l.quick >= quickToGrow {
			l.limit, l.quick, l.changed = min(grown, most), 0, s.began.Add(s.took)
		}
	}
}

// failed notes that the store was unavailable.
func (l *limiter) failed(now time.Time) { l.limit, l.quick, l.changed = l.minLimit, 0, now }
