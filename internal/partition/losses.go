package partition

import (
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// ReportMissingCommit reports a loss if nothing was committed for the claim: it is unknown
// which records the topic had before.
func (o *Out) ReportMissingCommit(c *Committer) {
	if o.opts.Claim.NoCommit {
		o.PublishLoss(wire.Range{First: 0, Last: o.opts.Claim.Offset - 1},
			"nothing was committed: this is the first start, or the topic was deleted", c)
	}
}

// PublishLoss appends a notice of lost records to the control topic, in another goroutine. No
// position is committed until the notice is acked, so that the next owner finds the same
// loss if the claim ends first. If the control topic refuses the notice for good, commits
// continue, and the notice is only in the process log.
func (o *Out) PublishLoss(r wire.Range, reason string, c *Committer) {
	lost := wire.Lost{Topic: o.opts.Claim.Topic, Partition: o.opts.Claim.Partition, First: r.First, Last: r.Last, Reason: reason}
	m := lost.Encode()
	o.losses = append(o.losses, m.Raw())
	o.committer = c
	c.Hold()
	o.sendLosses()
}

// sendLosses starts to append the waiting notices, unless an append is in flight.
func (o *Out) sendLosses() {
	if len(o.losses) == 0 || o.ctx.Err() != nil {
		return
	}
	acked := func(sent SendResult) {
		for _, a := range sent.Acked {
			o.lossesAcked(len(a.Records))
		}
		o.losses = slices.Concat(sent.Left, o.losses)
	}
	if _, ok := o.send(o.control, o.losses, acked); ok {
		o.losses = nil
	}
}

// lossesAcked releases the committer for n notices.
func (o *Out) lossesAcked(n int) {
	for range n {
		o.committer.Release(time.Now())
	}
}

func (o *Out) handleRefusedLoss(r refusal) {
	o.opts.Logger.Error("control topic rejected the notice of a loss, check the topic with orderclose topics check",
		"control", o.opts.ControlTopic, "loss", string(lossValue(r.record)), "err", r.err)
	o.lossesAcked(1)
}

// lossValue returns the value of a notice's record.
func lossValue(r wire.RawRecord) []byte {
	m, err := r.Message()
	if err != nil {
		return nil
	}
	return m.Value
}
