package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/wire"
)

// ErrPausedUntilLater says that a pause would end another one earlier, which the error names with its reason.
var ErrPausedUntilLater = wire.ErrEndsLater

// Pause is a pause that is on: one path closes no orders until it ends.
type Pause struct {
	Path      orderclose.Path `json:"path"`
	Category  string          `json:"category,omitempty"` // of the orders that wait; "": all orders wait
	Until     time.Time       `json:"until"`
	Reason    string          `json:"reason"`
	CreatedAt time.Time       `json:"created_at"` // by the clock of the database, or of the brokers
}

func pausesOf(on []wire.Pause) []Pause {
	all := make([]Pause, len(on))
	for i, p := range on {
		all[i] = Pause{p.Path, p.Category, p.Until, p.Reason, p.CreatedAt}
	}
	return all
}

// PauseRequest says what is paused, for how long, and why. For and Reason are required.
type PauseRequest struct {
	Paths    []orderclose.Path // that close nothing meanwhile; none: all of orderclose.Paths()
	Category string            // of the orders that wait; "": all orders wait
	For      time.Duration     // more than 0, at most 24 hours
	Reason   string            // for the others on call, at most 500 characters
	Replace  bool              // end a pause that ends later; otherwise the request is refused
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

// allOr returns the paths that a request names, or all. The error names one that does not exist.
func allOr(paths []orderclose.Path) ([]orderclose.Path, error) {
	for _, p := range paths {
		if !slices.Contains(orderclose.Paths(), p) {
			return nil, fmt.Errorf("path is %q, want some of %q", p, orderclose.Paths())
		}
	}
	if len(paths) == 0 {
		paths = orderclose.Paths()
	}
	return paths, nil
}

// check completes a request, and returns where its pauses are kept.
func (a *Admin) check(ctx context.Context, r *PauseRequest) (kept ops.Pauser, err error) {
	r.Paths, err = allOr(r.Paths)
	if err = errors.Join(err, ops.CheckPause(r.For), ops.CheckReason(r.Reason)); err == nil {
		err = a.p.CheckCategories(ctx, r.Category)
	}
	if err != nil {
		return nil, failed(err)
	}
	return a.p.Pauser()
}

// PlanPause returns what Pause would change. If Pause would fail because a pause ends later, it returns the plan and that error; its other
// errors are those of Pause too.
func (a *Admin) PlanPause(ctx context.Context, r PauseRequest) (PausePlan, error) {
	kept, err := a.check(ctx, &r)
	if err != nil {
		return PausePlan{}, err
	}
	on, err := kept.Pauses(ctx)
	if err != nil {
		return PausePlan{}, err
	}
	ended, err := wire.Shortened(on, r.Paths, r.Category, time.Now().Add(r.For), r.Replace)
	return PausePlan{pausesOf(on), pausesOf(ended)}, err
}

// Pause closes no orders for a while, and returns the pauses that it has ended earlier. Closers, sweeps and programs that close on read
// obey within 2 s. Nothing is lost: records wait, and orders stay unpaid and can be paid. The pause ends by itself, or by Resume. It
// replaces a pause of the same path and category.
//
// The error names a field that is missing or too large, or wraps ErrPausedUntilLater, ErrNotFound if neither topics.yaml nor an unpaid order
// has the category, ErrNoCategory, ErrNoDatabase or ErrNoKafka: pauses are in the database if orders are closed there, otherwise in
// the control topic.
func (a *Admin) Pause(ctx context.Context, r PauseRequest) (ended []Pause, err error) {
	kept, err := a.check(ctx, &r)
	if err != nil {
		return nil, err
	}
	shortened, err := kept.Pause(ctx, r.Paths, r.Category, r.For, r.Reason, r.Replace)
	return pausesOf(shortened), a.acted(ctx, err == nil, err, "Pause", r)
}

// Resume ends the pauses of a category, or with "" all pauses, of some paths, or without paths of all. It returns those that it has
// ended: none, if nothing was paused.
func (a *Admin) Resume(ctx context.Context, category string, paths ...orderclose.Path) (ended []Pause, err error) {
	paths, err = allOr(paths)
	if err != nil {
		return nil, err
	}
	kept, err := a.p.Pauser()
	if err != nil {
		return nil, err
	}
	were, err := kept.Resume(ctx, paths, category)
	return pausesOf(were), a.acted(ctx, len(were) > 0, err, "Resume", category, paths)
}
