package compensator

import (
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose"
)

// Sweep makes one pass by hand: it tries each order that is overdue now once, also those that rest in a loop, with or without other processes
// beside it. With dryRun it only counts them. The report is valid also if an error ended the pass early.
func (c *Compensator) Sweep(ctx context.Context, dryRun bool) (Report, error) {
	l := c.newLoop(nil)
	l.hand = &Report{DryRun: dryRun}
	t := l.newTurn()
	err := t.runByHand(ctx)
	r := *l.hand
	r.TookMillis = time.Since(t.began).Milliseconds()
	switch {
	case ctx.Err() != nil:
		c.o.Logger.Info("sweep stopped", "report", r)
	case err != nil:
		c.o.Logger.Error("sweep failed", "err", err, "report", r)
	default:
		c.o.Logger.Info("swept", "report", r)
	}
	if !dryRun && !errors.Is(err, orderclose.ErrPaused) {
		c.recordSweep(ctx, r, err)
	}
	return r, err
}

// runByHand is a turn without a limit of its time. It has one pass, which rests of a loop do not concern.
func (t *turn) runByHand(ctx context.Context) error {
	_, err := t.begin(ctx)
	t.hand.StartedAt, t.hand.Cutoff = t.now, t.cutoff
	if err == nil {
		err = t.askOlder(ctx)
	}
	return err
}

// foundByHand counts what a pass by hand has read.
func (t *turn) foundByHand(found []orderclose.Order) {
	for _, o := range found {
		if t.hand.Found++; t.hand.OldestDue.IsZero() {
			t.hand.OldestDue = o.Due
		}
		if t.paused[o.Category] {
			t.hand.Paused++
		}
	}
}

// progressByHand reports how far a pass by hand has come.
func (t *turn) progressByHand() {
	t.hand.TookMillis = time.Since(t.began).Milliseconds()
	_ = t.calls.within(callTimeout+stopTimeout, "Options.Progress", func() error { t.o.Progress(*t.hand); return nil }) // logged; the pass goes on
}
