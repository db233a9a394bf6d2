package release

import (
	"errors"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
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
	loop        *partition.Loop
	queue       []*entry  // to be tried now, in log order
	waiting     []*entry  // to be retried later
	pausedUntil time.Time // until then no event is tried: the service is unavailable
	inFlight    int       // attempts in flight
	open        int       // number of unsettled events
	bytes       int       // their size
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
	skipped bool  // no call failed; the open releases were not called, because the breaker is open
	hung    int   // 0 unless the service was unavailable; else 1 plus how often that was proved to be this event's fault
	hangs   int   // failures without an answer while the service answered others
	answers int64 // Worker.answers at the last of them
	err     error // error of the last release that was refused or failed
}

func (w *Worker) newHandler(l *partition.Loop) partition.Handler {
	return &handler{Worker: w, loop: l}
}

// Turn implements partition.Handler.
func (h *handler) Turn() {
	h.queueDue()
	h.startAttempts()
}

// Room implements partition.Handler.
func (h *handler) Room() (bool, time.Duration) {
	if h.open < maxOpen && h.bytes < maxOpenBytes {
		return true, 0
	}
	return false, 0
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
			h.loop.Done(r.Offset)
		case err != nil:
			h.loop.DeadLetterUnreadable(r, err)
		default:
			e.open = e.event.Release
			h.queue = append(h.queue, e)
			h.countOpen(e, 1)
		}
	}
}

// End implements partition.Handler.
func (h *handler) End() { h.metrics.waiting.Sub(float64(h.open)) }

// countOpen adds n, 1 or -1, to the number of events in memory.
func (h *handler) countOpen(e *entry, n int) {
	h.open += n
	h.bytes += n * e.message.Size()
	h.metrics.waiting.Add(float64(n))
}

// queueDue queues the entries whose retry is due.
func (h *handler) queueDue() {
	now := h.o.Now()
	h.waiting = slices.DeleteFunc(h.waiting, func(e *entry) bool {
		due := !now.Before(e.until)
		if due {
			h.queue = append(h.queue, e)
		}
		return due
	})
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	now := h.o.Now()
	for _, e := range h.waiting {
		d = min(d, e.until.Sub(now))
	}
	if len(h.queue) > 0 && now.Before(h.pausedUntil) {
		d = min(d, h.pausedUntil.Sub(now))
	}
	return d
}
