package release

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/tracing"
)

// startAttempts starts attempts up to the limit.
func (h *handler) startAttempts() {
	for len(h.queue) > 0 && h.inFlight < h.o.Parallel && !h.o.Now().Before(h.pausedUntil) {
		e := h.queue[0]
		h.queue = h.queue[1:]
		if e.first.IsZero() {
			e.first = h.o.Now()
		}
		h.inFlight++
		h.loop.Go(func(ctx context.Context) { h.attempt(ctx, e) }, func() {
			h.inFlight--
			h.applyAttempt(e)
		})
	}
}

// attempt calls the Releaser for each unsettled release. It owns the entry while it
// runs.
func (h *handler) attempt(ctx context.Context, e *entry) {
	ctx, span := h.tracer.Continue(ctx, tracing.Release, e.event.OrderID, h.tracer.Parent(&e.message))
	defer func() { tracing.End(span, e.err) }()
	var open []orderclose.Release
	ownFault := false
	e.skipped, e.hung, e.err = true, 0, nil
	for i, r := range e.open {
		made, err := false, error(nil)
		if h.loop.Ctx.Err() == nil {
			made, err = h.call(ctx, Request{OrderID: e.event.OrderID, SKU: r.SKU, Quantity: r.Quantity, Key: r.Key, EventID: e.id})
		}
		if !made { // the other calls would not be made either
			open = append(open, e.open[i:]...)
			e.err = cmp.Or(err, e.err)
			break
		}
		switch resultOf(err) {
		case resultRefused:
			e.refused, e.err = e.refused+1, err
		case resultFailed:
			open = append(open, r)
			e.skipped, e.err = false, err //mutant:release-hang-retried
			if !unavailable(err) {
				ownFault = true
			} else if e.hung == 0 { // it is the event's fault if the service has answered others since it failed last
				if at := h.answers.Load(); at > e.answers {
					e.hangs, e.answers = e.hangs+1, at
				}
				e.hung = max(e.hangs, 1)
			}
		}
	}
	e.open = open
	if ownFault && e.hung == 0 {
		e.failures++
	}
}

// applyAttempt applies the result of an attempt. An event for which the service was
// called without success waits for its retry behind the other events, also while the
// breaker is open. Otherwise an event on which the service hangs would be the probe
// each time.
func (h *handler) applyAttempt(e *entry) {
	if h.loop.Ctx.Err() != nil && len(e.open) > 0 {
		return // the event is gone, or belongs to the next owner
	}
	d := decide(attempted{open: len(e.open), refused: e.refused, failures: e.failures + e.hung, skipped: e.skipped, since: h.o.Now().Sub(e.first), lastErr: e.err})
	switch {
	case d.settled:
		h.loop.Done(e.message.Offset)
		h.countOpen(e, -1)
	case d.cause != "":
		h.metrics.calls.WithLabelValues(string(resultGivenUp)).Add(float64(len(e.open))) // the failed calls are counted already
		h.loop.DeadLetter(e.message, d.cause, d.detail)
		h.countOpen(e, -1)
	case d.pauseAll:
		h.queue = slices.Insert(h.queue, 0, e)
		h.pausedUntil = h.o.Now().Add(d.wait)
	default:
		h.loop.Logger.Warn("stock release failed, will retry", "order", e.event.OrderID, "open", len(e.open), "in", d.wait.Round(time.Second),
			"err", e.err, retry.Stack(e.err))
		e.until = h.o.Now().Add(d.wait)
		h.waiting = append(h.waiting, e)
	}
}
