package partition

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// BackOff is the backoff of all loops: from 50 ms to half a second, with jitter, without
// end. After a broker has died no event says when its partitions have new leaders, and
// due records wait for the next attempt. A BackOff belongs to one goroutine.
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

// Linger returns a context that ends d after ctx: for work that must not begin after ctx
// has ended, but may finish then. The caller must call cancel.
func Linger(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		Sleep(lingering, d)
		cancel()
	})
	return lingering, func() {
		stop()
		cancel()
	}
}
