package compensator

import (
	"slices"
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

// resting holds the orders that sweeps leave out for a while, because a sweep could not close them: such as those whose
// payment is pending. Otherwise sweeps that follow each other within seconds would ask the payment provider each
// time. A process that takes over tries all again. A nil resting leaves out nothing.
type resting map[string]rest

// rest is the rest of one order.
type rest struct {
	until time.Time // by the database's clock
	last  time.Duration
}

// without returns the pages without the orders that rest now, and without empty pages.
func (r resting) without(pages [][]orderclose.Order, now time.Time) (left [][]orderclose.Order) {
	if len(r) == 0 {
		return pages
	}
	for _, page := range pages {
		page = slices.DeleteFunc(slices.Clone(page), func(o orderclose.Order) bool { return now.Before(r[o.ID].until) })
		if len(page) > 0 {
			left = append(left, page)
		}
	}
	return left
}

// tried remembers how a close ended.
func (r resting) tried(o orderclose.Outcome, now time.Time) {
	before, known := r[o.OrderID]
	switch done := o.Verdict != orderclose.Failed && o.Verdict != orderclose.PaymentPending; {
	case r == nil:
	case done:
		delete(r, o.OrderID)
	case known || len(r) < maxResting:
		last := min(max(2*before.last, firstRest), longestRest)
		r[o.OrderID] = rest{now.Add(last), last}
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
