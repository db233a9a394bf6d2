package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// releaseDue appends the records whose release time has come to their destinations: those of the last fetch, and then those of
// the window.
func (h *handler) releaseDue() {
	for h.loop.Ctx.Err() == nil && h.loop.StillAssigned() {
		now, leaving := h.now().UnixMilli(), h.ready
		fetched := len(leaving) > 0
		if h.ready = nil; !fetched {
			leaving = h.window.takeReleased(now, maxReleaseBytes)
		}
		if len(leaving) == 0 {
			return
		}
		toClose, others := h.separate(leaving, fetched, now)
		if len(toClose) > 0 { // wait for the answer: nothing is more urgent
			h.loop.SendNow(h.o.CloseTopic, toClose, h.handleForwarded) //mutant:commit-before-ack
		}
		for _, b := range others {
			if len(b.records) > 0 {
				h.hop(b.topic, b.records)
			}
			b.reset()
		}
		h.loop.Await()
		clear(h.window.taken) // so that the bodies can be freed
		h.loop.Commit()
		h.report()
	}
}

// outgoing is the records that hop to one topic together.
type outgoing struct {
	topic   string
	records []wire.RawRecord
}

// reset drops the records and keeps the slice's memory.
func (b *outgoing) reset() {
	clear(b.records)
	b.records = b.records[:0]
}

// separate decides the destination of each record. It returns the records for the close topic in the
// slice that it was given, because almost all records go there. The other records are in others.
// If fetched, the bodies are in the memory of a fetch, which is freed at the end of a turn. Then
// separate copies the bodies of the other records, because their appends may take longer.
func (h *handler) separate(leaving []wire.RawRecord, fetched bool, now int64) (toClose []wire.RawRecord, others []*outgoing) {
	current := h.relay.current.Load()
	toClose = leaving[:0]
	for i := range leaving {
		r := &leaving[i]
		to := current.decide(r.DueAt, r.Appended, now)
		if to.close {
			toClose = append(toClose, *r)
			continue
		}
		if to.cause != "" {
			h.loop.DeadLetterRaw(*r, to.cause, to.detail)
			continue
		}
		if fetched { // it was due, and the clock has gone back since
			r.Body = h.bodyPool.copy(r.Body)
		}
		h.addTo(to.topic, *r)
	}
	return toClose, h.outgoing
}

// addTo adds a record to those that hop to a topic.
func (h *handler) addTo(topic string, r wire.RawRecord) {
	for _, b := range h.outgoing {
		if b.topic == topic {
			b.records = append(b.records, r)
			return
		}
	}
	h.outgoing = append(h.outgoing, &outgoing{topic: topic, records: []wire.RawRecord{r}})
}

// handleForwarded processes the result of an append to the close topic. Records that
// are not acked within a few seconds go back into the window, so that a close topic that accepts nothing
// does not block hops.
func (h *handler) handleForwarded(sent send.Result) {
	for _, acked := range sent.Acked {
		h.metrics.forwarded.WithLabelValues(h.loop.Claim.Topic).Add(float64(len(acked.Records)))
		now := h.timeAt(acked.Answered).UnixMilli()
		for i := range acked.Records {
			r := &acked.Records[i]
			// An earlier due time is forged, or the record was sent much too late.
			if r.DueAt >= r.Appended-orderclose.DefaultMaxDelay.Milliseconds() {
				metrics.Observe(h.metrics.lateness, time.Duration(now-r.DueAt)*time.Millisecond, h.traceparent(r))
			}
		}
	}
	h.putBack(sent.Left, sent.Pause)
}

// traceparent returns the traceparent of a record of a traced order, and "" otherwise.
func (h *handler) traceparent(r *wire.RawRecord) string {
	if !h.o.Exemplars {
		return ""
	}
	return tracing.Sampled(string(r.Header(wire.HeaderTraceparent)))
}

// hop starts to append records to a delay topic.
func (h *handler) hop(topic string, records []wire.RawRecord) {
	if h.loop.Failing(topic) { //mutant:hop-to-failing
		records = h.putBackNearlyDue(records)
	}
	if len(records) > 0 {
		h.loop.Send(topic, records, h.handleHops)
	}
}

// handleHops processes the result of hops. Records that were not accepted go back into
// the window. They go to the close topic if they are due before the delay topic works
// again.
func (h *handler) handleHops(sent send.Result) {
	for _, acked := range sent.Acked {
		h.metrics.hops.WithLabelValues(h.loop.Claim.Topic, sent.Topic).Add(float64(len(acked.Records)))
		if sent.Topic == h.loop.Claim.Topic && !acked.At.IsZero() { // a hop into its own topic goes to this partition
			h.ahead = leaderBehind(h.timeAt(sent.Began), h.timeAt(acked.Answered), acked.At) //mutant:leader-clock-unknown
		}
	}
	h.putBack(sent.Left, sent.Pause)
}

// putBackNearlyDue puts some records back into the window, and returns the others. It puts
// back the records that become due before an append to a failing topic would be given up.
func (h *handler) putBackNearlyDue(records []wire.RawRecord) (others []wire.RawRecord) {
	until := h.now().Add(send.MaxTime).UnixMilli()
	for _, r := range records {
		if r.DueAt <= until {
			h.window.push(waiting{record: r, release: r.DueAt})
			continue
		}
		others = append(others, r)
	}
	return others
}

// putBack puts records into the window again. They leave after the pause, or when they
// become due if that is sooner.
func (h *handler) putBack(records []wire.RawRecord, pause time.Duration) {
	if h.loop.Ctx.Err() != nil {
		return
	}
	now := h.now()
	retryAt := now.Add(pause).UnixMilli() + 1 // rounded up, or the loop would spin until the pause is over
	for _, r := range records {
		release := retryAt
		if r.DueAt > now.UnixMilli() {
			release = min(retryAt, r.DueAt)
		}
		h.window.push(waiting{record: r, release: release})
	}
}

// timeAt converts a moment of the recent past to the database's clock.
func (h *handler) timeAt(at time.Time) time.Time { return h.now().Add(-time.Since(at)) }
