package closer

import (
	"math/bits"
	"time"
)

// limiter bounds how many orders may be in transactions at once (AIMD: additive increase,
// multiplicative decrease). Each transaction is compared with the target time. When as many
// orders as the limit were closed in fast transactions, the limit grows by a step. A slow
// transaction halves the limit, unless smaller ones take as long: then fewer orders at once
// would only close fewer orders, and the limit grows. If the store is unavailable, the limit
// falls to its minimum, so that a backlog starts slowly.
//
// A limiter holds no lock and reads no clock.
type limiter struct {
	target                   time.Duration
	minLimit, maxLimit, step int
	first                    int // the limit of a closer that starts
	limit                    int
	orders                   int           // in transactions since the limit last changed; as many as the limit raise it
	lastCut                  time.Time     // when the limit was last lowered
	usual                    time.Duration // how long transactions take, whatever their size: a moving average
	sizes                    [32]size      // by the number of binary digits of the orders in flight
}

// size is what the limiter knows of transactions of about one size.
type size struct {
	took time.Duration // moving average
	at   time.Time     // when the last one ended
}

const (
	// sizeMemory is how long the moving average of a size counts. If transactions take longer than a quarter of
	// sizeMemory, the average counts for four times their duration. A longer memory would keep the limit at its minimum
	// for longer when the store becomes slow for all sizes. A shorter memory costs more in a backlog, whose
	// transactions all have one size: when the averages of smaller sizes are too old, the limiter halves the limit once to measure again.
	sizeMemory = 5 * time.Second
	// sizeWeight divides the difference that one transaction adds to a moving average: the durations of
	// calls of a service vary by half and more.
	sizeWeight = 4
)

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
// lower the limit again. A transaction that ran while less than half of the limit was in
// use does not show that more orders would take no longer. It raises the limit only up to the one of a closer that starts,
// which has no such proof either.
func (l *limiter) observe(s sample) {
	slow, step := s.took > l.target, l.step
	if slow {
		step = min(l.limit, 2*l.step)
	}
	helps := l.smallerHelps(s)
	switch {
	case slow && s.began.Before(l.lastCut):
	case slow && helps: //mutant:slow-call-always-halves
		l.limit, l.orders, l.lastCut = max(l.limit/2, l.minLimit), 0, s.began.Add(s.took)
	case 2*s.inFlight >= l.limit || l.limit < l.first:
		if l.orders += s.orders; l.orders >= l.limit {
			l.limit, l.orders = min(l.limit+step, l.maxLimit), 0
		}
	}
}

// smallerHelps adds a transaction to the average of its size. It reports whether smaller transactions take less than three
// quarters of the time of larger ones. If the time grew with the orders, half as many orders would take half of the time.
// If only one size is known, smallerHelps returns true, unless the limit is at its minimum.
func (l *limiter) smallerHelps(s sample) bool {
	ended, n := s.began.Add(s.took), bits.Len(uint(s.inFlight))
	known := func(of *size) bool { return !of.at.IsZero() && ended.Sub(of.at) <= max(sizeMemory, 4*of.took) }
	l.usual += (s.took - l.usual) / sizeWeight
	own := &l.sizes[n]
	if known(own) {
		own.took += (s.took - own.took) / sizeWeight
	} else {
		own.took = s.took
	}
	own.at = ended
	mean := func(sizes []size) (mean time.Duration) {
		n := 0
		for i := range sizes {
			if known(&sizes[i]) {
				n++
				mean += sizes[i].took
			}
		}
		return mean / time.Duration(max(n, 1))
	}
	if smaller := mean(l.sizes[:n]); smaller > 0 {
		return 4*smaller < 3*own.took
	}
	if larger := mean(l.sizes[n+1:]); larger > 0 {
		return 4*own.took < 3*larger
	}
	return l.limit > l.minLimit
}

// failed notes that the store was unavailable.
func (l *limiter) failed(now time.Time) { l.limit, l.orders, l.lastCut = l.minLimit, 0, now }

// batchSize returns how many of the orders may go together. Replays may use half of the
// limit, so that fresh orders have room beside them.
func (l *limiter) batchSize(orders int, replay bool) int {
	if replay {
		return max(min(orders, l.limit/2), 1)
	}
	return min(orders, l.limit)
}
