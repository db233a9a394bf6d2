package closer

import (
	"container/heap"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
)

// followPause notes the verdict on an order if the orders of its category are paused, or were
// (before) when the order was tried last.
//
// The store alone knows whether an order is paused, but asking for thousands of them every 2 s would
// be a load. So each partition asks for one order of a category, the canary, every pausedWait,
// another one each time. When a paused order is closed, all others of its category are tried at once.
// The category is that of the record. If it is wrong or missing, an order waits for pausedMax at most.
func (h *handler) followPause(e *entry, v orderclose.Verdict, before bool, now time.Time) {
	category := e.record.Order.Category
	canary := h.buffer.canaries[category]
	switch {
	case e.paused && canary == nil:
		h.pauses.noted(pausedCategory(category), "")
		h.buffer.nextCanary(category, now.Add(pausedWait))
	case v == orderclose.Closed && before && canary != nil:
		h.pauses.ended(pausedCategory(category), time.Now())
		h.buffer.wakePaused(category, now) //mutant:pause-end-unnoticed
		delete(h.buffer.canaries, category)
	case e == canary:
		h.buffer.nextCanary(category, now.Add(pausedWait))
	}
}

// nextCanary makes the paused order that would be tried next the canary of its category, and tries it
// at the given time.
func (b *buffer) nextCanary(category string, at time.Time) {
	if b.canaries == nil {
		b.canaries = map[string]*entry{}
	}
	delete(b.canaries, category)
	for i, e := range b.parked { // roughly by retryAt
		if e.paused && e.record.Order.Category == category {
			b.canaries[category] = e
			e.retryAt = at
			heap.Fix(&b.parked, i)
			return
		}
	}
}

// wakePaused makes all paused orders of a category ready to be tried.
func (b *buffer) wakePaused(category string, now time.Time) {
	for _, e := range b.parked {
		if e.paused && e.record.Order.Category == category {
			e.retryAt = now
		}
	}
	heap.Init(&b.parked)
}

// allOrders and pausedCategory name the orders of a pause in the log.
const allOrders = "all"

func pausedCategory(name string) string { return fmt.Sprintf("of category %q", name) }

// pauseLog logs once for the process when a pause begins and when it ends. It is safe for concurrent
// use.
type pauseLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	at     map[string]time.Time // by orders: when a close last met the pause
}

// noted notes that a close met a pause. pause says how long it lasts and why, if that is known.
func (p *pauseLog) noted(orders, pause string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.at[orders]; !known {
		p.logger.Info("closing is paused", "orders", orders, "pause", pause)
	}
	p.at[orders] = time.Now()
}

// ended notes that a close that began at the given time met no pause.
func (p *pauseLog) ended(orders string, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.at[orders]; known && !began.Before(at) {
		p.logger.Info("closing is no longer paused", "orders", orders)
		delete(p.at, orders)
	}
}
