package partition

import (
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// losses are the notices of losses of a loop that are not acked, without those in flight.
type losses struct {
	waiting []wire.RawRecord
	retryAt time.Time // no append begins before this time
}

// reportMissingCommit reports a loss if nothing was committed for the claim: it is unknown
// which records the topic had before.
func (l *Loop) reportMissingCommit() {
	if l.Claim.NoCommit {
		l.publishLoss(wire.Range{First: 0, Last: l.Claim.Offset - 1}, nil, "nothing was committed: this is the first start, or the topic was deleted")
	}
}

// waited returns how many of the lost offsets were not done: of a log that was replaced, also of those that
// it is known to have had and nobody had read.
func (l *Loop) waited(f *wire.Fetched) (n int64) {
	first, end := max(f.Lost.First, l.committer.Low()), f.Lost.Last+1
	if f.Replaced {
		end = max(end, l.end)
	}
	n = max(0, end-first)
	for _, r := range l.committer.Runs() {
		n -= max(0, min(r.End, end)-max(r.First, first))
	}
	return n
}

// publishLoss appends a notice of lost records to the control topic, in another goroutine. No
// position is committed until the notice is acked, so that the next owner finds the same
// loss if the claim ends first. If the control topic refuses the notice for good, commits
// continue, and the notice is only in the process log.
func (l *Loop) publishLoss(r wire.Range, waited *int64, reason string) {
	lost := wire.Lost{Topic: l.Claim.Topic, Partition: l.Claim.Partition, First: r.First, Last: r.Last, Reason: reason, Waited: waited}
	m := lost.Encode()
	l.losses.waiting = append(l.losses.waiting, m.Raw())
	l.committer.Hold()
	l.sendLosses()
}

// sendLosses starts to append the waiting notices, unless an append is in flight.
func (l *Loop) sendLosses() {
	if len(l.losses.waiting) == 0 || l.Ctx.Err() != nil || time.Now().Before(l.losses.retryAt) {
		return
	}
	waiting := l.losses.waiting
	l.losses.waiting = nil
	l.sendPart(flight{l.patient, time.Now()}, send.Destination{Topic: l.stage.ControlTopic}, waiting, func(r send.Result) {
		for _, refused := range r.Refused {
			m, _ := refused.Record.Message()
			l.Logger.Error("control topic rejected the notice of a loss, check the topic with orderclose topics check",
				"control", l.stage.ControlTopic, "loss", string(m.Value), "err", refused.Err)
			l.committer.Release(time.Now())
		}
		for _, a := range r.Acked {
			for range a.Records {
				l.committer.Release(time.Now())
			}
		}
		l.losses = losses{slices.Concat(r.Left, l.losses.waiting), time.Now().Add(r.Pause)}
	})
}
