package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

// releaseDue appends the records whose release time has come to their destinations.
func (h *handler) releaseDue() {
	for h.Ctx.Err() == nil && h.StillAssigned() {
		now := h.o.Now()
		leaving := h.window.takeReleased(now.UnixMilli(), maxReleaseBytes)
		if len(leaving) == 0 {
			return
		}
		for _, b := range h.batchByTopic(leaving, now.UnixMilli()) {
			b.send(b.topic, b.records)
			b.reset()
		}
		h.Await()
		h.window.reuse(leaving)
		h.Commit()
		h.report()
	}
}

// batch is the records that go to one topic together.
type batch struct {
	topic   string
	records []wire.RawRecord
	send    func(topic string, records []wire.RawRecord)
}

// reset drops the records and keeps the slice's memory.
func (b *batch) reset() {
	clear(b.records)
	b.records = b.records[:0]
}

// batchByTopic decides the destination of each record. The batch of the close topic comes
// first, because due records are the most urgent. Replays go to the replay topic.
func (h *handler) batchByTopic(leaving []waiting, now int64) []*batch {
	if h.batches == nil {
		h.batches = []*batch{{topic: h.o.CloseTopic, send: h.forward}, {topic: h.o.ReplayTopic, send: h.replay}}
	}
	toClose, toReplay := h.batches[0], h.batches[1]
	current := h.relay.current.Load()
	for _, w := range leaving {
		switch to := current.decide(w.record.DueAt, w.record.Appended, now); {
		case to.cause != "":
			h.DeadLetterRaw(w.record, to.cause, to.detail)
		case to.close && w.record.Replay && h.o.ReplayTopic != h.o.CloseTopic:
			toReplay.records = append(toReplay.records, h.ownBytes(w))
		case to.close:
			toClose.records = append(toClose.records, w.record)
		default:
			h.addHop(to.topic, h.ownBytes(w))
		}
	}
	return h.batches
}

// ownBytes returns the record with a body of its own. An append beside the loop may outlast
// the turn, and the memory of the fetch is freed at the end of a turn.
func (h *handler) ownBytes(w waiting) wire.RawRecord {
	if w.fetched {
		w.record.Body = h.bodyPool.copy(w.record.Body)
	}
	return w.record
}

// addHop adds a record to the batch of a delay topic.
func (h *handler) addHop(topic string, r wire.RawRecord) {
	for _, b := range h.batches {
		if b.topic == topic {
			b.records = append(b.records, r)
			return
		}
	}
	h.batches = append(h.batches, &batch{topic: topic, records: []wire.RawRecord{r}, send: h.hop})
}

// forward appends due records to the close topic and waits for the answer, since nothing
// is more urgent. Records that are not acked within a few seconds go back into the
// window, so that a close topic that accepts nothing does not block hops and replays.
func (h *handler) forward(topic string, records []wire.RawRecord) {
	if len(records) == 0 {
		return
	}
	sent := h.SendNow(topic, records)
	h.countForwarded(sent)
	for i := range sent.Left { // the bodies may be in the memory of the fetch
		sent.Left[i].Body = h.bodyPool.copy(sent.Left[i].Body)
	}
	h.putBack(sent.Left, sent.Pause)
}

// countForwarded marks and counts records that were appended to the close topic or the
// replay topic.
func (h *handler) countForwarded(sent partition.SendResult) {
	for _, acked := range sent.Acked {
		h.DoneAll(acked.Records)
		now := h.brokerTime(acked.Answered).UnixMilli()
		h.lateness = h.lateness[:0]
		for _, r := range acked.Records {
			h.lateness = append(h.lateness, time.Duration(now-r.DueAt)*time.Millisecond)
			if !acked.At.IsZero() && acked.At.UnixMilli() < r.DueAt {
				h.metrics.Early()
			}
		}
		h.metrics.Forwarded(h.Claim.Topic, h.lateness)
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
