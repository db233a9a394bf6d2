package partition

import (
	"slices"
	"time"

	"orderclose"
)

// Begin tells of a claim of which nothing was committed: what was in the topic
// before, if anything, nobody can say.
func (o *Out) Begin(c *Committer) {
	if o.o.Claim.Fresh {
		o.TellLost(orderclose.Range{First: 0, Last: o.o.Claim.Offset - 1},
			"nothing was committed: this is the first start, or the topic was deleted", c)
	}
}

// TellLost tells the control topic that records are gone, beside the loop. Until that is
// acked no position is committed, so that the next owner finds the same loss if the claim
// ends first. A control topic that refuses the record for good stops no commit: the log
// tells of the loss.
func (o *Out) TellLost(r orderclose.Range, reason string, c *Committer) {
	lost := orderclose.Lost{Topic: o.o.Claim.Topic, Partition: o.o.Claim.Partition, First: r.First, Last: r.Last, Reason: reason}
	m := lost.Encode()
	o.losses = append(o.losses, m.Raw())
	o.mark = c
	c.Hold()
	o.startTelling()
}

// startTelling begins to tell the losses that wait, unless that is under way.
func (o *Out) startTelling() {
	if len(o.losses) == 0 || o.ctx.Err() != nil {
		return
	}
	told := func(sent SendResult) {
		for _, acked := range sent.Acked {
			o.toldLosses(len(acked.Records))
		}
		o.losses = slices.Concat(sent.Left, o.losses)
	}
	if _, ok := o.send(o.control, o.losses, told); ok {
		o.losses = nil
	}
}

// toldLosses has the position committed once every loss was told.
func (o *Out) toldLosses(n int) {
	for range n {
		o.mark.Release(time.Now())
	}
}

func (o *Out) lossRefused(r refused) {
	o.o.Logger.Error("the control topic refuses to be told of a loss: compare it with what it must look like, with orderclose topics check",
		"control", o.o.ControlTopic, "loss", string(lossOf(r.record)), "err", r.err)
	o.toldLosses(1)
}

// lossOf is the value of a loss's record.
func lossOf(r orderclose.RawRecord) []byte {
	m, err := r.Message()
	if err != nil {
		return nil
	}
	return m.Value
}
