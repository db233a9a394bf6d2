package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/ops"
)

// ErrReplayRefused says that the close topic refuses some records, such as too large ones; all others were sent.
var ErrReplayRefused = ops.ErrReplayRefused

// ReplayRequest selects records of the close topic. From is required.
type ReplayRequest struct {
	From, To time.Time // when the records reached the topic: From <= time < To, in whole milliseconds; To zero: now
	Orders   []string  // only the records of these orders; none: all
}

// ReplayPlan is what a replay reads: a snapshot of the close topic. Records is an upper bound of what is sent. A plan is for the Replay of
// an Admin with the same Config, in the same process.
type ReplayPlan = ops.ReplayPlan

// ReplayResult is what a replay has done: the fields of ReplayPlan, and the numbers of records Sent, Skipped (copies, invalid, or of
// other orders) and Refused; Refusals has the first 100 refused ones, with the reasons.
type ReplayResult = ops.ReplayResult

// ReplayOptions say how a replay is carried out.
type ReplayOptions struct {
	Rate     int                     // how many records are sent a second at most; default 1000
	Progress func(done, total int64) // called with the records handled and all of the plan; may be nil
}

// PlanReplay finds the records that Replay would send again. The error names a field, or wraps ErrNoKafka.
func (a *Admin) PlanReplay(ctx context.Context, r ReplayRequest) (ReplayPlan, error) {
	for _, id := range r.Orders {
		if err := orderclose.ValidateID(id); err != nil {
			return ReplayPlan{}, fmt.Errorf("ReplayRequest.Orders: %w", err)
		}
	}
	if r.To.IsZero() {
		r.To = time.Now()
	}
	return a.p.PlanReplay(ctx, r.From, r.To, r.Orders...)
}

// Replay sends the records of a plan to the closers again, so that their orders are closed if they were not. Closing twice changes nothing: a replay
// that was interrupted may be repeated. The copies go to the close topic, each to the partition of its record. After an error the result
// counts what was done. The error wraps ErrNoKafka or ErrReplayRefused.
func (a *Admin) Replay(ctx context.Context, plan ReplayPlan, o ReplayOptions) (ReplayResult, error) {
	switch {
	case a.p.Kafka == nil:
		return ReplayResult{}, ErrNoKafka
	case o.Rate < 0:
		return ReplayResult{}, fmt.Errorf("ReplayOptions.Rate is %d, want 1 or more records a second", o.Rate)
	}
	progress := func(done int64) {
		if o.Progress != nil {
			o.Progress(done, plan.Records)
		}
	}
	r, err := ops.Replay(ctx, reads.Log{Cluster: a.p.Kafka}, plan, cmp.Or(o.Rate, ops.ReplayRate), progress)
	return r, a.acted(ctx, r.Sent > 0, err, "Replay", ReplayRequest{From: plan.From, To: plan.To, Orders: plan.Orders}, r.Sent)
}
