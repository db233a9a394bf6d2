package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
)

// Errors of PlanReplay and Replay.
var (
	ErrNoSuchPartition = ops.ErrNoSuchPartition // the close topic has no such partition
	ErrCategoryUnknown = ops.ErrCategoryUnknown // categories select records, and the category of one is not known
	ErrReplayRefused   = ops.ErrReplayRefused   // the replay topic refuses some records, such as too large ones; all others were sent
)

// ReplayRequest selects records of the close topic. From is required.
type ReplayRequest struct {
	From, To           time.Time // when the records reached the topic: From <= time < To, in whole milliseconds; To zero: now
	Orders, Categories []string  // only the records of these orders, and of these categories; none: all
	Partitions         []int     // of the close topic; none: all
	Restart            bool      // begin again, whatever an interrupted replay of the same request has sent
}

// ReplayPlan is what a replay reads: a snapshot of the close topic, and the Preview of what it would change. Preview has the numbers of
// Records and Orders that would be sent, of those Skipped (replays themselves, or invalid) and Unselected, the selected orders without a record
// (Missing), and Verdicts: the number of orders by what closing them would return now; nil without a database. Handled is how many records an
// interrupted replay of the same request has handled. A plan is for the Replay of an Admin with the same Config, in the same process.
type ReplayPlan = ops.ReplayPlan

// ReplayResult is what a replay has done: the fields of ReplayPlan, and the numbers of records Sent, Skipped, Unselected and Refused; Refusals has
// the first 100 refused ones, with the reasons.
type ReplayResult = ops.ReplayResult

// ReplayOptions say how a replay is carried out.
type ReplayOptions struct {
	Rate     int                     // how many records are sent a second at most; default 5000
	Progress func(done, total int64) // called with the records handled and all of the plan; may be nil
}

// PlanReplay reads the records that Replay would send again, and asks the database, if there is one, about their orders. The error names a
// field, or wraps ErrNoKafka, ErrNoSuchPartition or ErrCategoryUnknown.
func (a *Admin) PlanReplay(ctx context.Context, r ReplayRequest) (ReplayPlan, error) {
	for _, id := range r.Orders {
		if err := orderclose.ValidateID(id); err != nil {
			return ReplayPlan{}, fmt.Errorf("ReplayRequest.Orders: %w", err)
		}
	}
	if r.To.IsZero() {
		r.To = time.Now()
	}
	plan, err := a.p.PlanReplay(ctx, ops.ReplayWindow{From: r.From, To: r.To, Orders: r.Orders, Categories: r.Categories, OnlyPartitions: r.Partitions,
		Restart: r.Restart})
	if err == nil {
		plan.Preview, err = ops.PreviewReplay(ctx, a.p.Kafka, plan, a.p.ReplayDatabase(), nil)
	}
	return plan, err
}

// Replay sends the records of a plan to the closers again, so that their orders are closed if they were not. Closing twice changes nothing. Records
// take the replay topic, and do not delay orders that become due now. If it is interrupted, a new plan of a request with the same times
// continues it. After an error the result counts what was done. The error wraps ErrNoKafka, ErrCategoryUnknown or ErrReplayRefused.
func (a *Admin) Replay(ctx context.Context, plan ReplayPlan, o ReplayOptions) (ReplayResult, error) {
	switch {
	case a.p.Kafka == nil:
		return ReplayResult{}, ErrNoKafka
	case o.Rate < 0:
		return ReplayResult{}, fmt.Errorf("ReplayOptions.Rate is %d, want 1 or more records a second", o.Rate)
	}
	again := ops.ReplayOptions{Rate: cmp.Or(o.Rate, ops.ReplayRate), Database: a.p.ReplayDatabase()}
	if o.Progress != nil {
		again.Progress = func(done int64) { o.Progress(done, plan.Records) }
	}
	r, err := ops.Replay(ctx, a.p.Kafka, plan, again)
	return r, a.acted(ctx, r.Sent > 0, err, "Replay", plan.ReplayWindow, r.Sent)
}
