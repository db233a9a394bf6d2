package release

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"orderclose"
	"orderclose/internal/partition"
	"orderclose/internal/wire"
)

const (
	// maxOpen and maxOpenBytes limit the unsettled events that a partition keeps in
	// memory. At the limit it is not read.
	maxOpen      = 1000
	maxOpenBytes = 16 << 20
)

// handler releases the stock of the events of one partition. All fields belong to the
// goroutine of the partition's loop. An attempt owns its entry while it runs.
type handler struct {
	*Worker
	*partition.Loop
	queue       []*entry  // to be tried now, in log order
	waiting     []*entry  // to be retried later
	nextRetry   time.Time // time of the next retry
	pausedUntil time.Time // until then no event is tried: the service is unavailable
	inFlight    int       // attempts in flight
	open        int       // number of unsettled events; bytes is their size
	bytes       int
}

// entry is an event that is being released.
type entry struct {
	message wire.Message
	id      string
	event   orderclose.OrderClosed
	open    []orderclose.Release // releases that are not settled
	refused int
	first   time.Time // time of the first attempt
	until   time.Time // time of the next attempt, if the entry waits for a retry

	failures int // attempts that failed by the release's own fault
	// Results of the last attempt:
	notCalled bool  // every failed call was skipped by the open breaker
	hung      int   // 0 unless the service was unavailable; else 1 plus how often that was proved to be this event's fault
	err       error // error of the last release that was refused or failed
}

func (w *Worker) newHandler(l *partition.Loop) partition.Handler {
	return &handler{Worker: w, Loop: l}
}

// Turn implements partition.Handler.
func (h *handler) Turn() {
	h.queueDue()
	h.startAttempts()
}

// Fetch implements partition.Handler.
func (h *handler) Fetch() {
	if h.open < maxOpen && h.bytes < maxOpenBytes && !h.DeadLettersFull() {
		h.FetchMore()
	}
}

// Handle implements partition.Handler. It queues the events. Events without stock are
// settled at once.
func (h *handler) Handle(f wire.Fetched) {
	for _, r := range f.Records {
		e := &entry{}
		m, err := r.Message()
		if err == nil {
			e.message = m
			e.id, e.event, err = orderclose.DecodeClosed(m.Value, h.o.Event)
		}
		switch {
		case errors.Is(err, orderclose.ErrOtherEvent), err == nil && len(e.event.Release) == 0:
			h.Done(r.Generation, r.Offset)
		case err != nil:
			h.DeadLetterUnreadable(r, err)
		default:
			e.open = e.event.Release
			h.queue = append(h.queue, e)
			h.countOpen(e, 1)
		}
	}
}

// Reset implements partition.Handler. The stock of the old log's events is not released: no
// sweep finds it. For the same reason nothing limits how far a log that lost its end is read
// again. Duplicates are harmless: a release has an idempotency key.
func (h *handler) Reset() {
	h.queue, h.waiting = nil, nil
	h.o.Metrics.StockWaiting(-h.open)
	h.open, h.bytes = 0, 0
}

// End implements partition.Handler.
func (h *handler) End() { h.o.Metrics.StockWaiting(-h.open) }

// countOpen adds n, 1 or -1, to the number of events in memory.
func (h *handler) countOpen(e *entry, n int) {
	h.open += n
	h.bytes += n * e.message.Size()
	h.o.Metrics.StockWaiting(n)
}

// queueDue queues the entries whose retry is due.
func (h *handler) queueDue() {
	now := h.o.Now()
	if len(h.waiting) == 0 || now.Before(h.nextRetry) {
		return
	}
	h.nextRetry = time.Time{}
	h.waiting = slices.DeleteFunc(h.waiting, func(e *entry) bool {
		due := !now.Before(e.until)
		if due {
			h.queue = append(h.queue, e)
		} else {
			h.retryBy(e.until)
		}
		return due
	})
}

func (h *handler) retryBy(t time.Time) {
	if h.nextRetry.IsZero() || t.Before(h.nextRetry) {
		h.nextRetry = t
	}
}

// startAttempts starts attempts up to the limit.
func (h *handler) startAttempts() {
	for len(h.queue) > 0 && h.inFlight < h.o.Parallel && !h.o.Now().Before(h.pausedUntil) {
		e := h.queue[0]
		h.queue = h.queue[1:]
		if e.first.IsZero() {
			e.first = h.o.Now()
		}
		h.inFlight++
		h.Go(func(ctx context.Context) { h.attempt(ctx, e) }, func() {
			h.inFlight--
			h.applyAttempt(e)
		})
	}
}

// attempt calls the Releaser for each unsettled release. It owns the entry while it
// runs.
func (h *handler) attempt(ctx context.Context, e *entry) {
	var open []orderclose.Release
	ownFault := false
	e.notCalled, e.hung, e.err = true, 0, nil
	for i, r := range e.open {
		made, err := false, error(nil)
		if h.Ctx.Err() == nil {
			made, err = h.call(ctx, Request{OrderID: e.event.OrderID, SKU: r.SKU, Quantity: r.Quantity, Key: r.Key, EventID: e.id})
		}
		if !made { // the other calls would not be made either
			open = append(open, e.open[i:]...)
			e.err = cmp.Or(err, e.err)
			break
		}
		switch resultOf(err) {
		case Refused:
			e.refused, e.err = e.refused+1, err
		case Failed:
			open = append(open, r)
			e.notCalled, e.err = false, err
			if !unavailable(err) {
				ownFault = true
			} else if failures, _ := h.suspects.Failed(e.id, true); e.hung == 0 {
				e.hung = failures + 1
			}
		}
	}
	e.open = open
	if ownFault && e.hung == 0 {
		e.failures++
	}
	if len(open) == 0 {
		h.suspects.StoreAnswered(e.id)
	}
}

// applyAttempt applies the result of an attempt. An event for which the service was
// called without success waits for its retry behind the other events, also while the
// breaker is open. Otherwise an event on which the service hangs would be the probe
// each time.
func (h *handler) applyAttempt(e *entry) {
	if !h.Current(e.message.Generation) || h.Ctx.Err() != nil && len(e.open) > 0 {
		return // the event is gone, or belongs to the next owner
	}
	d := decide(attempted{open: len(e.open), refused: e.refused, failures: e.failures + e.hung, notCalled: e.notCalled, since: h.o.Now().Sub(e.first), lastErr: e.err})
	switch {
	case d.settled:
		h.Done(e.message.Generation, e.message.Offset)
		h.countOpen(e, -1)
	case d.cause != "":
		for range e.open {
			h.o.Metrics.StockRelease(string(GivenUp), 0)
		}
		h.suspects.Blamed(e.id)
		h.DeadLetter(e.message, d.cause, d.detail)
		h.countOpen(e, -1)
	case d.pauseAll:
		h.queue = slices.Insert(h.queue, 0, e)
		h.pausedUntil = h.o.Now().Add(d.wait)
	default:
		h.Logger.Warn("stock release failed, will retry", "order", e.event.OrderID, "open", len(e.open), "in", d.wait.Round(time.Second), "err", e.err)
		e.until = h.o.Now().Add(d.wait)
		h.retryBy(e.until)
		h.waiting = append(h.waiting, e)
	}
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	now := h.o.Now()
	if len(h.waiting) > 0 {
		d = min(d, h.nextRetry.Sub(now))
	}
	if len(h.queue) > 0 && now.Before(h.pausedUntil) {
		d = min(d, h.pausedUntil.Sub(now))
	}
	return d
}
