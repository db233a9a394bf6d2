// Package retry has what code shares that tries again until it succeeds: one backoff, one log line
// every 2 s, a bounded time to finish what is in flight (retry.go), a logger that bounds how many lines
// one cause of trouble logs (logs.go), and errors: with causes, and of panics (errors.go).
package retry

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// BackOff is the backoff of all loops: pauses from 50 ms to half a second, with jitter. It never
// gives up. The longest pause is short because due records wait for the next attempt, and no
// event says when the partitions of a dead broker have new leaders. A BackOff belongs to one
// goroutine.
type BackOff struct {
	*backoff.ExponentialBackOff
	logged time.Time
}

// NewBackOff returns a BackOff at its shortest pause.
func NewBackOff() *BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 500*time.Millisecond
	b.Reset()
	return &BackOff{ExponentialBackOff: b}
}

// logEvery is how often failed attempts are logged.
const logEvery = 2 * time.Second

// ShouldLog reports whether to log a failed attempt: the first one, and then one every 2 s.
func (b *BackOff) ShouldLog() bool {
	if !b.logged.IsZero() && time.Since(b.logged) < logEvery {
		return false
	}
	b.logged = time.Now()
	return true
}

// Sleep waits for d and returns true, or returns false as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// WithFinishTime returns a context that ends d after ctx: for work that must not begin after ctx
// has ended, but may finish after it. The caller must call cancel.
func WithFinishTime(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		Sleep(finishing, d)
		cancel()
	})
	return finishing, func() {
		stop()
		cancel()
	}
}

// FinishTime is how long work in flight may finish after a revocation or a stop: a request to
// Kafka, a transaction, a call.
const FinishTime = 2 * time.Second

// Do calls do until it succeeds, or returns false when ctx has ended. The context of
// do ends FinishTime after ctx. what names the work in the log.
func Do(ctx context.Context, logger *slog.Logger, what string, do func(ctx context.Context) error) bool {
	finishing, cancel := WithFinishTime(ctx, FinishTime)
	defer cancel()
	pauses := NewBackOff()
	for ctx.Err() == nil {
		err := do(finishing)
		if err == nil {
			return true
		}
		if ctx.Err() == nil && pauses.ShouldLog() {
			logger.Warn(what+" failed, will retry", "err", err)
		}
		Sleep(ctx, pauses.NextBackOff())
	}
	return false
}
