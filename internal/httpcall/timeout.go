package httpcall

import (
	"slices"
	"time"
)

// Sizes of the window of calls from which the timeout is computed.
const (
	windowCalls = 1000 // number of last calls that are remembered
	enoughCalls = 100  // with fewer calls the p99 would be the slowest call
)

// Limits of the timeout.
const (
	// firstLimit applies until there are enough calls.
	firstLimit = 500 * time.Millisecond
	// maxLimit is the longest timeout. A longer wait would only delay the requests
	// behind this one.
	maxLimit = 3 * time.Second
	// minLimit is longer than a garbage collection or a busy machine may delay a
	// call: a service that answers in 1 ms has not failed after 2 ms.
	minLimit = 50 * time.Millisecond
)

// AdaptiveTimeout holds the durations of the last calls, and computes the timeout of the next.
// The zero value is an empty window. It is not safe for concurrent use.
type AdaptiveTimeout struct {
	calls []time.Duration // a ring buffer once it is full
	next  int
	floor time.Duration // minimum of the next timeout, after a call timed out
}

// Add records a call that was answered after d.
func (w *AdaptiveTimeout) Add(d time.Duration) {
	if d <= w.base() {
		w.floor = 0
	}
	w.add(d)
}

// AddTimeout records a call that timed out after limit. It counts as a call of that
// duration, and doubles the next timeout until the usual one is enough again. So a
// service that became slower than ever gets enough time after a few calls, instead of
// timing out each time.
func (w *AdaptiveTimeout) AddTimeout(limit time.Duration) {
	w.floor = max(w.floor, min(2*limit, maxLimit))
	w.add(limit)
}

func (w *AdaptiveTimeout) add(d time.Duration) {
	if len(w.calls) < windowCalls {
		w.calls = append(w.calls, d)
		return
	}
	w.calls[w.next] = d
	w.next = (w.next + 1) % windowCalls
}

// P99 returns the duration that 99 of 100 calls did not exceed; ok is false if there
// were too few calls.
func (w *AdaptiveTimeout) P99() (time.Duration, bool) {
	n := len(w.calls)
	if n < enoughCalls {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(w.calls))
	return sorted[(n*99+99)/100-1], true // nearest rank
}

// Limit returns the timeout of the next call.
func (w *AdaptiveTimeout) Limit() time.Duration { return max(w.base(), w.floor) }

// base returns the timeout without the increase after timeouts.
func (w *AdaptiveTimeout) base() time.Duration {
	p99, ok := w.P99()
	if !ok {
		return firstLimit
	}
	return min(max(p99*3/2, minLimit), maxLimit)
}
