package scenario

import (
	"context"
	"time"
)

// At waits until t. It is for the pace of a load: a customer pays at a moment, a service takes its time. It returns false if
// ctx ends first. A test must not wait by it for what another process does: on a busy machine that takes longer.
func At(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Pause is At for a moment that is d from now.
func Pause(ctx context.Context, d time.Duration) bool { return At(ctx, time.Now().Add(d)) }

// Every calls do, and again after each pause, until ctx ends.
func Every(ctx context.Context, pause time.Duration, do func()) {
	for do(); Pause(ctx, pause); do() {
	}
}
