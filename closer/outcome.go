package closer

import (
	"errors"
	"math/rand/v2"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/wire"
)

// applyOutcome decides what to do with an entry after its outcome, and does it.
func (h *handler) applyOutcome(e *entry, o orderclose.Outcome) {
	now, at := h.o.Clock.Now(), h.o.Clock.Time() //mutant:retry-wrong-clock
	if o.Verdict == orderclose.NotDue {
		at = o.At // so that a wait for a due time ends at it //mutant:release-wrong-clock
	}
	h.compareDue(e.record.Order, o)
	jitter := rand.Float64()
	d := decide(e.record, o, at, jitter)
	if h.o.Swept && errors.Is(o.Err, pausing.ErrPausedCategory) { //mutant:paused-record-waits
		d = decision{}
	}
	if d.action == park && !h.buffer.hasRoom(e, h.memory.Share()/2) {
		d = d.inBucket(jitter)
	}
	h.countPending(e.record, d)
	if d.retry {
		h.loop.Logger.Warn("order not closed, will retry", "order", e.record.Order.ID, "offset", e.raw.Offset, "in", d.wait, "cause", d.cause, "detail", d.detail)
		h.metrics.retries.WithLabelValues(d.cause).Inc()
	}
	switch d.action {
	case settle:
		h.loop.Done(e.raw.Offset)
	case park:
		e.record = d.record // the due time may have moved, and a closing service uses it
		e.blocked = d.cause != "" || d.bucketWait > 0
		h.buffer.park(e, now.Add(d.wait))
	case giveUp:
		h.loop.DeadLetterRaw(e.raw, d.cause, d.detail)
	case schedule:
		record := d.retryRecord(at, wire.Origin{Topic: h.loop.Claim.Topic, Partition: h.loop.Claim.Partition, Offset: e.raw.Offset})
		m, err := e.encode(record)
		if err != nil { // unexpected, since the record was decoded; still no record may be lost
			h.loop.DeadLetterRaw(e.raw, "unreadable", err.Error())
			return
		}
		m.Offset = e.raw.Offset
		raw := m.Raw()
		raw.DueAt = orderclose.CeilMilli(record.Release).UnixMilli()
		h.retry(raw)
	}
}

// compareDue reports an order whose due times in the record and in the database are of two time zones.
// It does so once for an order: a record that is scheduled again has the due time of the database.
func (h *handler) compareDue(order orderclose.Order, o orderclose.Outcome) {
	if o.Verdict != orderclose.Closed && o.Verdict != orderclose.NotDue {
		return
	}
	if shift := zoneShift(order.Due, o.Due); shift != 0 { //mutant:zone-mistake-unnoticed
		h.metrics.dueDiffers.WithLabelValues(map[bool]string{true: "later", false: "earlier"}[shift > 0]).Inc()
		h.loop.Logger.Warn("due times of record and database differ as time zones do, unless the due time was moved",
			"order", order.ID, "record", order.Due.UTC(), "database", o.Due.UTC(), "differ_by", shift)
	}
}

// countPending counts an order that starts or stops waiting for the payment provider.
func (h *handler) countPending(before wire.Record, d decision) {
	switch was, is := !before.PendingSince.IsZero(), !d.record.PendingSince.IsZero(); {
	case is && !was:
		h.metrics.pendingBegan.Inc()
	case was && !is:
		h.metrics.pendingEnded.Inc()
	}
}
