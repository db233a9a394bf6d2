package patience

import (
	"slices"
	"time"
)

// The window of calls that a time-out is made from.
const (
	windowCalls = 1000 // the last calls that are remembered
	enoughCalls = 100  // with fewer a p99 means nothing: it would be the slowest but one
)

// The bounds of a time-out.
const (
	// firstLimit holds until there are enough calls.
	firstLimit = 500 * time.Millisecond
	// maxLimit is never exceeded: whoever waits for longer holds up what waits
	// behind it for nothing.
	maxLimit = 3 * time.Second
	// minLimit is above what a pause for garbage or a busy machine costs: a service
	// that answers in 1 ms has not failed after 2.
	minLimit = 50 * time.Millisecond
)

// Window is how long the last calls took, and what a next one may take.
// The zero value knows of no call.
type Window struct {
	calls []time.Duration // a ring once it is full
	next  int
	least time.Duration // after a time-out: what the next limit is at least
}

// Add notes a call that was answered after d.
func (w *Window) Add(d time.Duration) {
	if d <= w.base() {
		w.least = 0
	}
	w.add(d)
}

// AddTimeout notes a call that was not answered within its limit. It counts as
// one that took that long, and the next may take twice as long: a service that
// has become slower than it ever was is heard out after a few calls instead of
// being given up each time. That holds until the usual limit is enough again.
func (w *Window) AddTimeout(limit time.Duration) {
	w.least = max(w.least, min(2*limit, maxLimit))
	w.add(limit)
}

func (w *Window) add(d time.Duration) {
	if len(w.calls) < windowCalls {
		w.calls = append(w.calls, d)
		return
	}
	w.calls[w.next] = d
	w.next = (w.next + 1) % windowCalls
}

// P99 is the time that 99 of 100 calls kept within; false: there were too few.
func (w *Window) P99() (time.Duration, bool) {
	n := len(w.calls)
	if n < enoughCalls {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(w.calls))
	return sorted[(n*99+99)/100-1], true // nearest rank
}

// Limit is how long the next call may take.
func (w *Window) Limit() time.Duration { return max(w.base(), w.least) }

// base is the limit when nothing timed out lately.
func (w *Window) base() time.Duration {
	p99, ok := w.P99()
	if !ok {
		return firstLimit
	}
	return min(max(p99*3/2, minLimit), maxLimit)
}
