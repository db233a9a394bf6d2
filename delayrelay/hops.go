package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// hop starts to append records to a delay topic.
func (h *handler) hop(topic string, records []wire.RawRecord) {
	if h.loop.Failing(topic) {
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
			h.clock.observeLeader(acked.At, h.brokerTime(sent.Began), h.brokerTime(acked.Answered))
		}
	}
	h.putBack(sent.Left, sent.Pause)
}

// replay starts to append due records to the replay topic. It does not wait, because the
// replay topic may accept nothing while the close topic does.
func (h *handler) replay(topic string, records []wire.RawRecord) {
	if len(records) > 0 {
		h.loop.Send(topic, records, h.handleForwarded)
	}
}

// putBackNearlyDue puts some records back into the window, and returns the others. It puts
// back the records that become due before an append to a failing topic would be given up.
func (h *handler) putBackNearlyDue(records []wire.RawRecord) (others []wire.RawRecord) {
	until := h.o.Now().Add(send.MaxTime).UnixMilli()
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
// become due if that is sooner. Records of a log that was replaced meanwhile are dropped:
// the sweep closes their orders.
func (h *handler) putBack(records []wire.RawRecord, pause time.Duration) {
	if h.loop.Ctx.Err() != nil {
		return
	}
	now := h.o.Now()
	retryAt := now.Add(pause).UnixMilli() + 1 // rounded up, or the loop would spin until the pause is over
	for _, r := range records {
		if !h.loop.Current(r.Generation) {
			continue
		}
		release := retryAt
		if r.DueAt > now.UnixMilli() {
			release = min(retryAt, r.DueAt)
		}
		h.window.push(waiting{record: r, release: release})
	}
}

// overdueSince is since when records wait for a topic that does not accept them, by
// Options.Now; zero if none do.
func (h *handler) overdueSince() time.Time {
	since := h.loop.FailingSince()
	if since.IsZero() {
		return since
	}
	return h.timeAt(since)
}

// timeAt converts a moment of the recent past to Options.Now.
func (h *handler) timeAt(at time.Time) time.Time { return h.o.Now().Add(-time.Since(at)) }

// brokerTime converts a moment of the recent past to the brokers' clock.
func (h *handler) brokerTime(at time.Time) time.Time { return h.timeAt(at).Add(-h.clock.ahead) }
