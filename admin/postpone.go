package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
)

// Errors of PlanPostpone and ApplyPostpone.
var (
	ErrBeyondMaxDelay = ops.ErrBeyondMaxDelay // an order would be due further ahead than delays.max of topics.yaml
	ErrDueGenerated   = store.ErrDueGenerated // the database computes the due times
	ErrNoCreated      = store.ErrNoCreated    // creation selects orders, and topics.yaml has no key orders.created
	ErrOutOfReach     = store.ErrOutOfReach   // an order would be in the table of a month that is not read any more
	ErrNoPlan         = ops.ErrNoPlan         // the plan is none of PlanPostpone
	ErrIncompletePlan = ops.ErrIncompletePlan // the end of the plan is missing
	ErrOtherDatabase  = ops.ErrOtherDatabase  // the plan is for another database or table
)

// PostponeRequest selects unpaid orders, and says by how much they are postponed. DueBefore and By are required.
type PostponeRequest struct {
	Categories []string  // of the orders; none: all
	DueBefore  time.Time // only orders that are due before
	// CreatedFrom and CreatedBefore, if not zero, select the orders that were created from the one time on, and before the other.
	CreatedFrom, CreatedBefore time.Time
	By                         time.Duration // whole seconds, more than 0
}

// PostponePlan is what a PostponeRequest would change. Orders counts the orders, and Overdue those of them that a closer may close before;
// OtherCategories and OtherCreation count those that are due before DueBefore and not selected. FirstDue and LastDue are the due times of
// Orders before the change. The fields of the request have the same names; By is a text, such as 20m. Table and Database name the table.
type PostponePlan = ops.PostponeSummary

// PostponeResult counts the orders of a plan by what became of them: Postponed by this call, Before by an earlier one, NotOpen because they
// were paid or closed since the plan was made, Moved because they have another due time since, and NotFound.
type PostponeResult = ops.PostponeOutcome

// PlanPostpone finds the orders of a request, and writes the plan with each order and its due time to w, as orderclose postpone --plan FILE
// does. It changes nothing. Keep what it wrote until ApplyPostpone has returned without an error: another plan would move orders again.
// The error names a field, or wraps ErrNotFound if nobody has a category, ErrClosedElsewhere, ErrNoDatabase, ErrNoCategory, or an error of
// those above.
func (a *Admin) PlanPostpone(ctx context.Context, r PostponeRequest, w io.Writer) (PostponePlan, error) {
	switch {
	case r.DueBefore.IsZero():
		return PostponePlan{}, errors.New("PostponeRequest.DueBefore is missing")
	case r.By <= 0 || r.By%time.Second != 0:
		return PostponePlan{}, fmt.Errorf("PostponeRequest.By is %v, want whole seconds, more than 0", r.By)
	case slices.Contains(r.Categories, ""):
		return PostponePlan{}, errors.New("PostponeRequest.Categories has an empty one")
	}
	plan, err := a.p.PostponeWhere(ctx)
	if err == nil {
		err = a.p.CheckCategories(ctx, r.Categories...)
	}
	if err != nil {
		return PostponePlan{}, failed(err)
	}
	milli := func(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
	plan.Categories, plan.By, plan.DueBefore = r.Categories, config.FormatDuration(r.By), milli(r.DueBefore)
	plan.CreatedFrom, plan.CreatedBefore = milli(r.CreatedFrom), milli(r.CreatedBefore)
	return ops.PlanPostpone(ctx, a.p.Store, plan, a.p.Config.MaxDelay, w)
}

// ApplyPostpone postpones the orders of a plan that are still unpaid and have their due time of the plan, in pages. Called again, also after
// an interruption, it changes only what is left. progress is called with the orders handled and all orders of the plan; nil: it is not.
// After an error the result counts what was done. The errors are those of PlanPostpone.
func (a *Admin) ApplyPostpone(ctx context.Context, plan io.ReadSeeker, progress func(done, total int64)) (PostponeResult, error) {
	where, err := a.p.PostponeWhere(ctx)
	if err != nil {
		return PostponeResult{}, err
	}
	r, err := ops.ApplyPostpone(ctx, a.p.Store, plan, where, a.p.Config.MaxDelay, progress)
	return r, a.acted(ctx, r.Postponed > 0, err, "ApplyPostpone", r)
}
