package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// releaseDue appends the records whose release time has come to their destinations: those of the last fetch, and then those of the window.
func (h *handler) releaseDue() {
	for h.loop.Ctx.Err() == nil && h.loop.StillAssigned() {
		now, leaving, from := h.now().UnixMilli(), h.ready, h.fetched
		if h.ready = nil; len(leaving) == 0 {
			leaving, from = h.window.takeReleased(now, maxReleaseBytes), nil
		}
		if len(leaving) == 0 {
			return
		}
		toClose, hops := h.separate(leaving, now)
		h.send(h.o.CloseTopic, toClose, from, h.handleForwarded) //mutant:commit-before-ack
		for topic, records := range hops {
			h.send(topic, records, from, h.handleHops)
		}
		h.loop.Await()
		if len(h.flights) > 0 { // they use it
			h.window.taken = nil
		}
		clear(h.window.taken) // so that the bodies can be freed
		h.loop.Commit()
		h.report()
	}
}

// fetched is the memory of a fetch. It is freed when nothing uses it any more.
type fetched struct {
	free  func()
	users int
}

func (f *fetched) release() {
	if f == nil {
		return
	}
	if f.users--; f.users == 0 && f.free != nil {
		f.free()
	}
}

// flight is records that are being appended: their memory, and when the first one is due in Unix milliseconds.
type flight struct {
	bytes int
	first int64
}

// separate decides the destination of each record. It returns the records for the close topic in the slice that it was given, because
// almost all records go there, and the others by topic.
func (h *handler) separate(leaving []wire.RawRecord, now int64) (toClose []wire.RawRecord, hops map[string][]wire.RawRecord) {
	current := h.relay.current.Load()
	toClose = leaving[:0]
	for i := range leaving {
		r := &leaving[i]
		switch to := current.decide(r.DueAt, r.Appended, now); {
		case to.close:
			toClose = append(toClose, *r)
		case to.cause != "":
			h.loop.DeadLetterRaw(*r, to.cause, to.detail)
		case r.DueAt-now <= shortHop.Milliseconds():
			h.stay(*r, r.DueAt)
		default:
			topic := h.loop.Accepting(current.Buckets, to.topic)
			if hops == nil {
				hops = map[string][]wire.RawRecord{}
			}
			hops[topic] = append(hops[topic], *r)
		}
	}
	return toClose, hops
}

// send starts to append records. What is not acked within a few seconds goes back into the window, to leave after a pause, or when it
// becomes due if that is sooner. from is the memory of the records, if they are those of a fetch.
func (h *handler) send(topic string, records []wire.RawRecord, from *fetched, then func(send.Result)) {
	if len(records) == 0 {
		return
	}
	f := &flight{first: records[0].DueAt}
	for i := range records {
		f.bytes += records[i].Size()
		f.first = min(f.first, records[i].DueAt)
	}
	if h.flights[f] = true; from != nil {
		from.users++ //mutant:fetch-freed-early
	}
	ended := func(sent send.Result) {
		delete(h.flights, f)
		if then(sent); h.loop.Ctx.Err() == nil {
			now := h.now()
			retryAt := now.Add(sent.Pause).UnixMilli() + 1 // rounded up, or the loop would spin until the pause is over
			for _, r := range sent.Left {
				release := retryAt
				if topic != h.o.CloseTopic {
					release = min(release, r.DueAt)
				}
				h.stay(r, release)
			}
		}
		from.release()
	}
	if topic == h.o.CloseTopic {
		h.loop.Send(topic, records, ended)
		return
	}
	h.loop.SendUntilDue(h.now(), topic, records, ended)
}

// stay puts a record into the window, with a body of its own.
func (h *handler) stay(r wire.RawRecord, release int64) {
	r.Body = h.bodyPool.copy(r.Body)
	h.window.push(waiting{record: r, release: release})
}

// handleForwarded notes the acks of the close topic.
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
}

// traceparent returns the traceparent of a record of a traced order, and "" otherwise.
func (h *handler) traceparent(r *wire.RawRecord) string {
	if !h.o.Exemplars {
		return ""
	}
	return tracing.Sampled(string(r.Header(wire.HeaderTraceparent)))
}

// handleHops notes the acks of a delay topic.
func (h *handler) handleHops(sent send.Result) {
	for _, acked := range sent.Acked {
		h.metrics.hops.WithLabelValues(h.loop.Claim.Topic, sent.Topic).Add(float64(len(acked.Records)))
		if sent.Topic == h.loop.Claim.Topic && acked.Partition == h.loop.Claim.Partition && !acked.At.IsZero() {
			h.ahead = leaderBehind(h.timeAt(acked.Began), h.timeAt(acked.Answered), acked.At) //mutant:leader-clock-unknown
		}
	}
}

// timeAt converts a moment of the recent past to the database's clock.
func (h *handler) timeAt(at time.Time) time.Time { return h.now().Add(-time.Since(at)) }
