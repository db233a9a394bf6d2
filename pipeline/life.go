package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

// ErrClosed is the error of Run and WaitReady, and of eventreader.Read, of an App that was closed.
var ErrClosed = errors.New("pipeline: the App was closed")

var (
	errRanBefore = errors.New("pipeline: Run was called before: make another App")
	errReturned  = errors.New("pipeline: Run has returned")
)

// needRun is the name in Ready of an App that does not run yet, and appEnded of one that never will.
const needRun, appEnded = "Run", "App"

// beginRun begins Run. stop ends it.
func (a *App) beginRun(stop func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case errors.Is(a.ended, ErrClosed):
		return ErrClosed
	case a.stop != nil || a.ended != nil:
		return errRanBefore
	}
	a.stop = stop
	return nil
}

// checkRoles returns an error if no role is named, or one of them twice.
func (a *App) checkRoles(roles []Role) error {
	if len(roles) == 0 {
		return fmt.Errorf("pipeline: Run needs a role: %v", RoleNames())
	}
	for i, role := range roles {
		if slices.Contains(roles[:i], role) {
			return fmt.Errorf("pipeline: Run names the role %s twice: name each role once", role)
		}
	}
	return nil
}

// buildParts builds the roles, and lists in Ready what they wait for.
func (a *App) buildParts(roles []Role) ([]part, error) {
	parts := make([]part, len(roles))
	for i, role := range roles {
		p, err := a.build(role)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", role, err)
		}
		parts[i] = p
		for _, need := range p.needs {
			a.ready.waiting.add(need.name, "not checked yet")
		}
	}
	a.ready.waiting.remove(needRun)
	return parts, nil
}

// endRun ends Run with err. It closes the connections if Close has left that to Run.
func (a *App) endRun(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop = nil
	if errors.Is(a.ended, ErrClosed) {
		a.own.Close()
		return errors.Join(ErrClosed, err)
	}
	if a.ended = errReturned; err != nil {
		a.ended = fmt.Errorf("%w: %w", errReturned, err)
	}
	a.ready.waiting.add(appEnded, "Run has returned")
	return err
}

// Close closes the connections that New made. Call it after Run has returned. During Run, Close ends
// Run and does not wait for it: Run closes the connections when everything has stopped, and returns an
// error that wraps ErrClosed. On a nil App, which New returns with an error, Close does nothing.
func (a *App) Close() {
	if a == nil {
		return
	}
	a.endLife()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended == nil:
		a.ended = ErrClosed
		a.ready.waiting.add(appEnded, "was closed") //mutant:closed-app-ready
	case !errors.Is(a.ended, ErrClosed): // Run has returned
		a.ended = fmt.Errorf("%w: %w", ErrClosed, a.ended)
	}
	if a.stop != nil {
		a.stop()
		return
	}
	a.own.Close()
}

// Ready lists what keeps the App from its work, with the reasons: the call of Run, servers, topics, "groups" that it has
// not joined, "database writes" while the database refuses the writes of a close, "closes" while all closes fail,
// "compensator" while its turns fail, and "lock" if the user may not use it. An empty list means that each
// role of Run has found what it needs, and works. The list is never empty after Run has returned, and
// after Close.
func (a *App) Ready() []string { return a.ready.waiting.list() }

// readyInterval is the time between two looks of WaitReady.
const readyInterval = 10 * time.Millisecond

// WaitReady waits until Ready is empty, and returns nil. Call it beside Run, or before. If ctx has
// ended, the error wraps ctx.Err and lists what the App waits for. Otherwise, if Run returns, the error
// wraps that of Run; after Close it wraps ErrClosed. Consumer groups may need some seconds more to assign their
// partitions. No record that is appended meanwhile is lost.
func (a *App) WaitReady(ctx context.Context) error {
	for {
		a.mu.Lock()
		ended := a.ended
		a.mu.Unlock()
		waits := a.Ready()
		switch {
		case ended == nil && len(waits) == 0:
			return nil
		case ctx.Err() != nil: // it may have ended Run too
			return fmt.Errorf("pipeline: not ready: %w; waiting for %s", ctx.Err(), strings.Join(waits, "; "))
		case ended != nil:
			return ended
		}
		retry.Sleep(ctx, readyInterval)
	}
}

// Hints lists problems that do not stop the App: topics that do not exist, a lock that cannot be taken, tables of months that do not fit,
// and a payment provider that fails every call.
func (a *App) Hints() []string { return a.ready.hints.list() }
