package closer

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// handler closes the orders of one partition of the close topic. Its
// fields belong to the goroutine of the partition's loop. Each turn closes one batch. The
// next fetch begins when every fetched order was tried once. Meanwhile the records of a burst
// gather in the log, and the next batch is large. Parked orders do not delay the next fetch.
type handler struct {
	*Closer
	loop    *partition.Loop
	buffer  buffer
	backoff *retry.BackOff // set while the store is unavailable
	retryAt time.Time      // with backoff: when to try again
	retries retries
}

func (c *Closer) newHandler(l *partition.Loop) partition.Handler {
	return &handler{Closer: c, loop: l}
}

// Turn implements partition.Handler.
func (h *handler) Turn() {
	if batch := h.nextBatch(); len(batch) > 0 {
		h.closeBatch(batch)
	}
	if h.loop.Ctx.Err() == nil {
		h.sendRetries()
	}
}

// Room implements partition.Handler. The buffer and the retries must have room for the records.
// Parked orders have room of their own.
func (h *handler) Room() (bool, time.Duration) {
	return h.buffer.wantsMore(h.backoff != nil, h.memory.Share()/2) && !h.retries.full(), 0 //mutant:closer-retries-unbounded
}

// Handle implements partition.Handler. It queues the records.
func (h *handler) Handle(f wire.Fetched) {
	for _, r := range f.Records {
		h.read(r)
	}
}

// read queues the order of a record.
func (h *handler) read(r wire.RawRecord) {
	e, err := h.buffer.entry(r, h.o.Clock.Now())
	if err != nil {
		h.loop.DeadLetterUnreadable(r, err)
		return
	}
	h.compareClocks(e.record, r.AppendedAt())
	h.buffer.add(e)
}

// compareClocks looks for a creation time after the append. One long before it says nothing here: most records have waited in a bucket.
func (h *handler) compareClocks(r wire.Record, appended time.Time) {
	if r.Order.CreatedAt.After(appended) && r.IsFirst() {
		h.o.Skews.Compare(clock.AtCloser, r.Order, appended)
	}
}

// End implements partition.Handler.
func (h *handler) End() {}

// nextBatch removes and returns the entries to close now, as many as the limiter allows.
// It returns none while the store is unavailable and the pause lasts.
func (h *handler) nextBatch() []*entry {
	now := h.o.Clock.Now()
	if h.backoff != nil && now.Before(h.retryAt) {
		return nil
	}
	return h.buffer.next(now, h.transactions.batcher.batchSize())
}

// closeBatch closes a batch and applies the outcomes.
func (h *handler) closeBatch(batch []*entry) {
	requests, again := make([]orderclose.CloseRequest, len(batch)), make([]string, len(batch))
	for i, e := range batch {
		o := &e.record.Order
		again[i] = cmp.Or(e.record.Lane, e.record.Cause)
		requests[i] = orderclose.CloseRequest{OrderID: o.ID, Attempt: e.record.Attempt, CreatedAt: o.CreatedAt, Due: o.Due, Category: o.Category,
			Traceparent: h.transactions.tracer.Sampled(e.record.Traceparent)}
	}
	for len(requests) > 0 && h.loop.Ctx.Err() == nil { //mutant:commit-before-close
		// The limiter may allow fewer orders by now. A transaction that began before a revocation may finish.
		ctx, cancel := retry.WithFinishTime(h.loop.Ctx, retry.FinishTime)
		outcomes, err := h.transactions.close(ctx, requests, again, h.loop.Beat) //mutant:slow-store-hangs
		cancel()
		if err != nil && !slices.ContainsFunc(outcomes, hasVerdict) {
			h.requeue(batch, err)
			break
		}
		h.backoff = nil
		for i, o := range outcomes {
			if !hasVerdict(o) {
				o.Err = err // the store may fail because of this order
			}
			h.applyOutcome(batch[i], o)
		}
		requests, again, batch = requests[len(outcomes):], again[len(outcomes):], batch[len(outcomes):]
	}
}

// requeue queues a batch that the store did not close, to be tried after a pause. The error
// of the store blames no order. The batch goes to the end of the queue: if one order makes
// the store fail each time, closing the others shows that the store works. After a
// revocation requeue does nothing, and the next owner reads the batch again.
func (h *handler) requeue(batch []*entry, err error) {
	if h.loop.Ctx.Err() != nil {
		return
	}
	if h.backoff == nil {
		h.backoff = retry.NewBackOff()
	}
	wait := h.backoff.NextBackOff()
	switch paused := errors.Is(err, orderclose.ErrPaused); {
	case paused: // pauseLog has logged it
		wait = pausedWait
	case h.backoff.ShouldLog():
		h.loop.Logger.Warn("closing a batch failed, will retry", "err", err)
	}
	h.retryAt = h.o.Clock.Now().Add(wait)
	h.buffer.add(batch...)
}

// hasVerdict reports whether the order got a verdict. If an error ends a batch, some of
// its orders have none.
func hasVerdict(o orderclose.Outcome) bool { return o.Verdict != "" }

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	now := h.o.Clock.Now()
	if len(h.retries.waiting) > 0 {
		d = min(d, max(time.Until(h.retries.at), 0))
	}
	switch {
	case h.backoff != nil && len(h.buffer.queue) > 0:
		return min(d, h.retryAt.Sub(now))
	case len(h.buffer.queue) > 0:
		return 0
	}
	return h.buffer.wake(now, d)
}
