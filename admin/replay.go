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

// ErrReplayRefused says that some records cannot be sent, such as too large ones, and dead letters of events; all others were sent.
var ErrReplayRefused = ops.ErrReplayRefused

// ReplayRequest selects records: From <= time < To, in whole milliseconds, is when they reached the close topic or, with DeadLetters, became
// dead letters. From is required, and To zero is now. Orders, if not empty, are the only ones.
type ReplayRequest = ops.ReplayRequest

// ReplayPlan is what a replay reads: a snapshot of the close topic, or of that of dead letters. Records is an upper bound of
// what is sent. A plan is for the Replay of an Admin with the same Config, in the same process.
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
	return a.p.PlanReplay(ctx, r)
}

// Replay sends the records of a plan to the closers again, so that their orders are closed if they were not. Closing twice changes nothing: a replay
// that was interrupted may be repeated. The copies go to the end of the close topic, and dead letters of orders to their delay topics. After an
// error the result counts what was done. The error wraps ErrNoKafka or ErrReplayRefused.
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
	return r, a.acted(ctx, r.Sent > 0, err, "Replay", plan.Request(), r.Sent)
}
