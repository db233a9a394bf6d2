package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// releaseDue appends the records whose release time has come to their destinations.
func (h *handler) releaseDue() {
	for h.loop.Ctx.Err() == nil && h.loop.StillAssigned() {
		now := h.o.Now()
		leaving, fetched := h.window.takeReleased(now.UnixMilli(), maxReleaseBytes)
		if len(leaving) == 0 {
			return
		}
		toClose, others := h.separate(leaving, fetched, now.UnixMilli())
		h.forward(toClose)
		for _, b := range others {
			b.send(b.topic, b.records)
			b.reset()
		}
		h.loop.Await()
		h.window.freeTaken()
		h.loop.Commit()
		h.report()
	}
}

// outgoing is the records that go to one topic together.
type outgoing struct {
	topic   string
	records []wire.RawRecord
	send    func(topic string, records []wire.RawRecord)
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
		r := leaving[i]
		to := current.decide(r.DueAt, r.Appended, now)
		toReplay := to.close && r.Replay && h.o.ReplayTopic != h.o.CloseTopic
		if to.close && !toReplay {
			toClose = append(toClose, r)
			continue
		}
		if to.cause != "" {
			h.loop.DeadLetterRaw(r, to.cause, to.detail)
			continue
		}
		if fetched {
			r.Body = h.bodyPool.copy(r.Body)
		}
		if toReplay {
			h.addTo(h.o.ReplayTopic, h.replay, r)
		} else {
			h.addTo(to.topic, h.hop, r)
		}
	}
	return toClose, h.outgoing
}

// addTo adds a record to those for a topic, which send sends.
func (h *handler) addTo(topic string, send func(string, []wire.RawRecord), r wire.RawRecord) {
	for _, b := range h.outgoing {
		if b.topic == topic {
			b.records = append(b.records, r)
			return
		}
	}
	h.outgoing = append(h.outgoing, &outgoing{topic: topic, records: []wire.RawRecord{r}, send: send})
}

// forward appends due records to the close topic and waits for the answer, since nothing
// is more urgent. Records that are not acked within a few seconds go back into the
// window, so that a close topic that accepts nothing does not block hops and replays.
func (h *handler) forward(records []wire.RawRecord) {
	if len(records) > 0 {
		h.loop.SendNow(h.o.CloseTopic, records, h.handleForwarded)
	}
}

// handleForwarded processes the result of an append to the close topic or the replay topic.
func (h *handler) handleForwarded(sent send.Result) {
	h.countForwarded(sent)
	h.putBack(sent.Left, sent.Pause)
}

// countForwarded counts records that were appended to the close topic or the replay topic.
func (h *handler) countForwarded(sent send.Result) {
	for _, acked := range sent.Acked {
		now := h.timeAt(acked.Answered).UnixMilli()
		h.lateness = h.lateness[:0]
		for _, r := range acked.Records {
			h.lateness = append(h.lateness, time.Duration(now-r.DueAt)*time.Millisecond)
			// An append time has whole milliseconds: the append may be up to one later.
			if !acked.At.IsZero() && acked.At.Add(time.Millisecond+h.clock.ahead).UnixMilli() < r.DueAt {
				h.metrics.early.Inc()
			}
		}
		h.metrics.Forwarded(h.loop.Claim.Topic, h.lateness)
	}
}

// freeFetched frees the memory of a fetch after its due records have left. Records that
// stay, and dead letters, have copies.
func (h *handler) freeFetched() {
	if h.free == nil || len(h.window.ready) > 0 {
		return
	}
	h.free()
	h.free = nil
}
