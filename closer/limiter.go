package closer

import "time"

// limiter bounds how many orders may be in transactions at once (AIMD: additive increase,
// multiplicative decrease). Each transaction is compared with the target time. When as many
// orders as the limit were closed in fast transactions, the limit grows by a step. A slow
// transaction halves the limit. If the store is unavailable, the limit falls to its minimum,
// so that a backlog starts slowly.
//
// A limiter holds no lock and reads no clock.
type limiter struct {
	target                   time.Duration
	minLimit, maxLimit, step int
	first                    int // the limit of a closer that starts
	limit                    int
	fastOrders               int       // orders in fast transactions since the limit last changed; as many as the limit raise it
	lastCut                  time.Time // when the limit was last lowered
}

// newLimiter returns the limiter for workers that close batches of the given size. The limit begins with a batch for
// each slot of fresh orders: the first backlog is closed as fast as later ones.
func newLimiter(target time.Duration, batch, workers int) limiter {
	first := batch * min(freshSlots, workers)
	return limiter{target: target, minLimit: max(batch/50, 1), maxLimit: batch * workers, step: max(batch/10, 1), first: first, limit: first}
}

// sample is a transaction that succeeded.
type sample struct {
	orders   int
	inFlight int // orders in transactions when it ended, its own included
	began    time.Time
	took     time.Duration
}

// observe updates the limit after a transaction.
//
// A slow transaction that began before the last cut ran under an older limit, and does not
// lower the limit again. A fast transaction that ran while less than half of the limit was in
// use does not show that more orders would be fast. It raises the limit only up to the one of a closer that starts,
// which has no such proof either.
func (l *limiter) observe(s sample) {
	switch {
	case s.took > l.target:
		if !s.began.Before(l.lastCut) {
			l.limit, l.fastOrders, l.lastCut = max(l.limit/2, l.minLimit), 0, s.began.Add(s.took)
		}
	case 2*s.inFlight >= l.limit || l.limit < l.first:
		if l.fastOrders += s.orders; l.fastOrders >= l.limit {
			l.limit, l.fastOrders = min(l.limit+l.step, l.maxLimit), 0
		}
	}
}

// failed notes that the store was unavailable.
func (l *limiter) failed(now time.Time) { l.limit, l.fastOrders, l.lastCut = l.minLimit, 0, now }

// batchSize returns how many of the orders may go together. Replays may use half of the
// limit, so that fresh orders have room beside them.
func (l *limiter) batchSize(orders int, replay bool) int {
	if replay {
		return max(min(orders, l.limit/2), 1)
	}
	return min(orders, l.limit)
}
