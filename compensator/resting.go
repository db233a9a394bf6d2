package compensator

import (
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// firstRest is how long an order rests after a sweep could not close it. Each further rest is twice as long,
	// up to longestRest, as the retries of the pipeline grow.
	firstRest   = 5 * time.Second
	longestRest = 5 * time.Minute
	// maxResting bounds the orders that are remembered. Further ones are tried by each sweep.
	maxResting = 100_000
)

// resting holds the orders that a series of sweeps, and sweeps alone, leave out for a while, because a sweep could not close them: such as
// those whose payment is pending. Otherwise sweeps that follow each other within seconds would ask the payment provider each
// time. A process that takes over tries all again.
type resting map[string]rest

// rest is the rest of one order.
type rest struct {
	until time.Time // by the database's clock
	due   time.Time // zero: unknown
	last  time.Duration
}

// rests reports whether an order rests now. A rest has a begin and an end. If the clock was set back to a time before the begin,
// the order does not rest.
func (r resting) rests(o orderclose.Order, now time.Time) bool {
	rest := r[o.ID]
	return now.Before(rest.until) && !now.Before(rest.until.Add(-rest.last))
}

// tried remembers how a close ended. With paused, an order that the store alone knows to be paused rests too. A close of a paused or a
// locked order does not end a rest that the order already has: the keeper looks at the order again at the end of that rest.
func (r resting) tried(o orderclose.Outcome, now time.Time, paused bool) {
	before, known := r[o.OrderID]
	rests := o.Verdict == orderclose.Failed || o.Verdict == orderclose.PaymentPending || o.Verdict == orderclose.Paused && paused ||
		o.Verdict == orderclose.NotFound // such as an order whose id orderclose refuses
	switch {
	case o.Verdict == orderclose.Paused && !rests, o.Verdict == orderclose.Contended:
	case !rests:
		delete(r, o.OrderID)
	case known || len(r) < maxResting:
		last := min(max(2*before.last, firstRest), longestRest)
		r[o.OrderID] = rest{now.Add(last), o.Due, last}
	}
}

// forget drops the orders whose rest ended so long ago that no sweep finds them any more: they were paid or closed
// by another program.
func (r resting) forget(now time.Time) {
	for id, rest := range r {
		if now.After(rest.until.Add(longestRest)) {
			delete(r, id)
		}
	}
}
