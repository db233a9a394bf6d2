package admin

import (
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
)

// ErrPausedUntilLater says that a pause would end another one earlier, which the error names with its reason.
var ErrPausedUntilLater = pausing.ErrEndsLater

// Pause is a pause that is on: no orders, or none of a category, are closed until it ends.
type Pause struct {
	Category  string    `json:"category,omitempty"` // of the orders that wait; "": all orders wait
	Until     time.Time `json:"until"`
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"` // by the clock of the database
}

func pausesOf(on []pausing.Pause) []Pause {
	all := make([]Pause, len(on))
	for i, p := range on {
		all[i] = Pause{p.Category, p.Until, p.Reason, p.CreatedAt}
	}
	return all
}

// PauseRequest says what is paused, for how long, and why. For and Reason are required.
type PauseRequest struct {
	Category string        // of the orders that wait; "": all orders wait
	For      time.Duration // more than 0, at most 24 hours
	Reason   string        // for the others on call, at most 500 characters
	Replace  bool          // end a pause that ends later; otherwise the request is refused
}

// PausePlan is what a PauseRequest would change.
type PausePlan struct {
	On    []Pause `json:"on"`    // that are on now
	Ended []Pause `json:"ended"` // those of On that the request would end earlier, which needs Replace
}

// Pauses returns the pauses that are on.
func (a *Admin) Pauses(ctx context.Context) ([]Pause, error) {
	on, err := a.p.Pauses(ctx)
	return pausesOf(on), err
}

// check checks a request, and returns the database of its pauses.
func (a *Admin) check(r PauseRequest) (kept *store.Store, err error) {
	if err = errors.Join(ops.CheckPause(r.For), ops.CheckReason(r.Reason)); err != nil {
		return nil, err
	}
	return a.p.PausesDatabase()
}

// PlanPause returns what Pause would change. If Pause would fail because a pause ends later, it returns the plan and that error; its other
// errors are those of Pause too.
func (a *Admin) PlanPause(ctx context.Context, r PauseRequest) (PausePlan, error) {
	kept, err := a.check(r)
	if err != nil {
		return PausePlan{}, err
	}
	on, err := kept.Pauses(ctx)
	if err != nil {
		return PausePlan{}, err
	}
	ended, err := pausing.Shortened(on, r.Category, time.Now().Add(r.For), r.Replace)
	return PausePlan{pausesOf(on), pausesOf(ended)}, err
}

// Pause closes no orders for a while, and returns the pauses that it has ended earlier. Closers, sweeps and programs that close on read
// obey within 2 s. Nothing is lost: records wait, and orders stay unpaid and can be paid. The pause ends by itself, or by Resume. It
// replaces a pause of the same category.
//
// The error names a field that is missing or too large, or wraps ErrPausedUntilLater,
// ErrNoCategory or ErrNoDatabase: a pause is a row of the database.
func (a *Admin) Pause(ctx context.Context, r PauseRequest) (ended []Pause, err error) {
	kept, err := a.check(r)
	if err != nil {
		return nil, err
	}
	shortened, err := kept.Pause(ctx, r.Category, r.For, r.Reason, r.Replace)
	return pausesOf(shortened), a.acted(ctx, err == nil, err, "Pause", r)
}

// Resume ends the pause of a category, or with "" that of all orders. It returns those that it has ended: none, if no such pause is on.
func (a *Admin) Resume(ctx context.Context, category string) (ended []Pause, err error) {
	kept, err := a.p.PausesDatabase()
	if err != nil {
		return nil, err
	}
	were, err := kept.Resume(ctx, category)
	return pausesOf(were), a.acted(ctx, len(were) > 0, err, "Resume", category)
}
