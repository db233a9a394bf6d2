package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// ParsePaths returns the paths of closing that a person names: pipeline, sweep, on-read, or all.
func ParsePaths(name string) ([]orderclose.Path, error) {
	if name == "all" {
		return orderclose.Paths(), nil
	}
	for _, p := range orderclose.Paths() {
		if wire.PathName(p) == name {
			return []orderclose.Path{p}, nil
		}
	}
	return nil, fmt.Errorf("path is %q, want pipeline, sweep, on-read or all", name)
}

// maxReason is the longest reason of a pause, in characters.
const maxReason = 500

// ParsePause returns how long a pause lasts.
func ParsePause(lasting string) (time.Duration, error) {
	d, err := config.ParseDuration(lasting)
	switch {
	case lasting == "":
		err = errors.New("for is missing: say how long, such as 30m")
	case err != nil:
		err = fmt.Errorf("for: %w: write a number and a unit, such as 30m", err)
	default:
		err = CheckPause(d)
	}
	return d, err
}

// CheckPause checks how long a pause lasts.
func CheckPause(d time.Duration) error {
	if d <= 0 || d > wire.MaxPause {
		return fmt.Errorf("for is %v, want more than 0 and at most %v; pause again if it takes longer", d, wire.MaxPause)
	}
	return nil
}

// CheckReason checks the reason of a pause.
func CheckReason(reason string) error {
	if n := len([]rune(reason)); strings.TrimSpace(reason) == "" || n > maxReason {
		return fmt.Errorf("reason is missing or longer than %d characters: say why, for the others on call", maxReason)
	}
	return nil
}

// Pauser keeps pauses of closing: store.Store if orders are closed in the database, otherwise Control.
type Pauser interface {
	// Pauses returns the pauses that are on.
	Pauses(ctx context.Context) ([]wire.Pause, error)
	// Pause keeps orders of a category, or with an empty category all orders, from being closed by
	// some paths for a time. With replace it returns the pauses that it ends earlier; without, the error names them and wraps
	// wire.ErrEndsLater. The error wraps store.ErrNoCategory if orders have no category.
	Pause(ctx context.Context, paths []orderclose.Path, category string, lasting time.Duration, reason string, replace bool) (shortened []wire.Pause, err error)
	// Resume ends pauses, and returns those that were on.
	Resume(ctx context.Context, paths []orderclose.Path, category string) (ended []wire.Pause, err error)
}

// Pauser returns where the pauses of the pipeline are kept.
func (p Pipeline) Pauser() (Pauser, error) {
	db, err := p.ClosingDatabase()
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, ErrNoDatabase):
		return nil, err
	case p.Control != nil:
		return p.Control, nil
	}
	return nil, ErrNoKafka
}

// Pauses implements Pauser.
func (c *Control) Pauses(ctx context.Context) ([]wire.Pause, error) {
	state, err := c.Read(ctx, time.Now())
	return state.Pauses, err
}

// Pause implements Pauser. If another operator has paused some of the paths for longer at the same time, the error wraps
// wire.ErrEndsLater too, and the other paths are paused.
func (c *Control) Pause(ctx context.Context, paths []orderclose.Path, category string, lasting time.Duration, reason string, replace bool) (
	shortened []wire.Pause, err error) {
	if category != "" {
		return nil, fmt.Errorf("a pause of one category needs orders that are closed in the database: %w", store.ErrNoCategory)
	}
	on, err := c.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	if shortened, err = wire.Shortened(on, paths, "", now.Add(lasting), replace); err != nil {
		return nil, err
	}
	pauses := make([]wire.Pause, len(paths))
	for i, p := range paths {
		pauses[i] = wire.Pause{Path: p, Until: now.Add(lasting), Reason: reason, CreatedAt: now, Replace: replace}
	}
	appended, err := c.WritePauses(ctx, pauses...)
	if err == nil {
		on, err = c.Pauses(ctx)
	}
	if err == nil {
		_, err = wire.Shortened(on, paths, "", cmp.Or(appended, time.Now()).Add(lasting), replace)
	}
	return shortened, err
}

// aheadAtMost is by how much the clock of an operator who ends a pause may be ahead.
const aheadAtMost = time.Hour

// Resume implements Pauser. No pause in the control topic is of one category. Resume also ends those that are over by
// this clock since less than aheadAtMost.
func (c *Control) Resume(ctx context.Context, paths []orderclose.Path, category string) (ended []wire.Pause, err error) {
	state, err := c.Read(ctx, time.Now().Add(-aheadAtMost))
	if err != nil {
		return nil, err
	}
	on := slices.DeleteFunc(state.Pauses, func(p wire.Pause) bool { return !slices.Contains(paths, p.Path) || category != "" })
	if len(on) == 0 {
		return nil, nil
	}
	marks, now := slices.Clone(on), time.Now().UTC()
	for i := range marks {
		marks[i].CreatedAt, marks[i].Until = now, now
	}
	_, err = c.WritePauses(ctx, marks...)
	return on, err
}
