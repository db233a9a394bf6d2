package closer

import "time"

// pace is how many orders may be in transactions at once: as many as the store
// closes without taking longer than the target for a transaction. It grows by a
// step when that many went through quickly enough, is halved by a transaction that
// took longer, and falls to its least when the store is unavailable, so that a
// backlog is let out slowly at first. Additive increase and multiplicative
// decrease: what keeps the connections of a network from drowning it.
//
// It holds no lock and reads no clock.
type pace struct {
	target            time.Duration
	least, most, step int
	limit             int
	quick             int       // orders that went through quickly since it last changed
	cut               time.Time // when it was last lowered
}

// newPace returns the pace of so many workers with batches of so many orders. It
// begins with one batch.
func newPace(target time.Duration, batch, workers int) pace {
	return pace{target: target, least: max(batch/50, 1), most: batch * workers, step: max(batch/10, 1), limit: batch}
}

// done is a transaction that succeeded.
type done struct {
	orders   int
	inFlight int // orders in transactions when it ended, its own included
	began    time.Time
	took     time.Duration
}

// took notes a transaction.
//
// One that began before the last cut says nothing of the present limit, and cuts
// no further. One that went through while less than half of the limit was in use
// says nothing of more, and raises nothing.
func (p *pace) took(d done) {
	switch {
	case d.took > p.target:
		if !d.began.Before(p.cut) {
			p.limit, p.quick, p.cut = max(p.limit/2, p.least), 0, d.began.Add(d.took)
		}
	case 2*d.inFlight >= p.limit:
		if p.quick += d.orders; p.quick >= p.limit {
			p.limit, p.quick = min(p.limit+p.step, p.most), 0
		}
	}
}

// failed notes that the store was unavailable.
func (p *pace) failed(now time.Time) { p.limit, p.quick, p.cut = p.least, 0, now }

// batch is how many orders may go together: of the replay lane half as many, so
// that there is room beside them.
func (p *pace) batch(most int, replay bool) int {
	if replay {
		return max(min(most, p.limit/2), 1)
	}
	return min(most, p.limit)
}
