package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

var (
	// ErrClosed is the error of Run and WaitReady of an App that was closed.
	ErrClosed = errors.New("pipeline: the App was closed")

	errRanBefore = errors.New("pipeline: Run was called before: make another App")
	errRanOut    = errors.New("pipeline: Run has returned")
)

// Names in Ready of an App that does not run yet, and of an App that does not run any more.
const (
	needRun  = "Run"
	appEnded = "App"
)

// life is the state of an App: Run runs once, and Close ends it.
type life struct {
	mu     sync.Mutex
	ran    bool   // Run was called
	stop   func() // ends Run; nil: it does not run
	closed bool
}

// begin begins Run. stop ends it.
func (l *life) begin(stop func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.ran:
		return errRanBefore
	}
	l.ran, l.stop = true, stop
	return nil
}

// checkRoles returns an error if no role is named, or one of them twice.
func checkRoles(roles []Role) error {
	if len(roles) == 0 {
		return fmt.Errorf("pipeline: Run needs a role: %v", knownRoles())
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
	}
	for _, need := range needs(parts) {
		a.ready.wait(need.name, "not checked yet")
	}
	if slices.ContainsFunc(roles, a.waitsForBuckets) {
		a.ready.wait(needBuckets, "not checked yet")
	}
	a.ready.done(needRun)
	return parts, nil
}

// endRun ends Run with err. It closes the connections if Close has left that to Run.
func (a *App) endRun(err error) error {
	a.life.mu.Lock()
	defer a.life.mu.Unlock()
	a.life.stop = nil
	if a.life.closed {
		a.own.Close()
		err = errors.Join(ErrClosed, err)
	}
	ended := errRanOut
	if err != nil {
		ended = fmt.Errorf("%w: %w", errRanOut, err)
	}
	a.ready.end("Run has returned", ended)
	return err
}

// Close closes the connections that New made. Call it after Run has returned.
//
// During Run, Close ends Run and does not wait for it: Run finishes as if its context had ended, closes the
// connections, and returns an error that wraps ErrClosed. Connections of the program's own, such as
// Servers.DB, must stay open until then. On a nil App, which New returns with an error, Close does nothing.
func (a *App) Close() {
	if a == nil {
		return
	}
	a.life.mu.Lock()
	defer a.life.mu.Unlock()
	a.life.closed = true
	a.ready.end("was closed", ErrClosed)
	if a.life.stop != nil {
		a.life.stop()
		return
	}
	a.own.Close()
}

// Ready lists what the App still waits for, with the reasons: the call of Run, servers, topics, and
// "database writes" while the database refuses the writes of a close. An empty list means ready: each
// role of Run has found what it needs, and runs. The list is never empty before Run, after Run has
// returned, and after Close.
func (a *App) Ready() []string { return a.ready.waitsFor() }

// WaitReady waits until Ready is empty, and returns nil. Call it before or after Run, from another
// goroutine. A consumer group may need some seconds more until its members have their partitions;
// records that are appended before are not lost. WaitReady returns an error
//
//   - if ctx ends first: it wraps ctx.Err and says what the App waits for
//   - if Run returns: it wraps the error of Run, if there is one
//   - if Close was called: it wraps ErrClosed
func (a *App) WaitReady(ctx context.Context) error {
	for {
		waits, ended, changed := a.ready.watch()
		switch {
		case ended != nil:
			return ended
		case len(waits) == 0:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("pipeline: not ready: %w; waiting for %s", ctx.Err(), strings.Join(waits, "; "))
		}
	}
}

// Hints lists problems that do not stop the App: topics that do not exist, and services
// that fail every call.
func (a *App) Hints() []string { return a.ready.listHints() }
