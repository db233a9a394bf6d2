package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/retry"
)

// Defaults of LockOptions.
const (
	DefaultLockKey    = "lock:scan_unpaid_orders"
	DefaultLockExpiry = 60 * time.Second
)

// LockOptions configure a RedisLock or a DatabaseLock, which require Client or Database.
type LockOptions struct {
	// Client must have ContextTimeoutEnabled in its options. Otherwise an extension on a
	// connection that hangs may outlast the lock.
	Client   redis.UniversalClient
	Database LockDatabase
	Key      string        // default DefaultLockKey
	Expiry   time.Duration // how long a dead holder blocks other processes; default DefaultLockExpiry. A living one extends it each third of it
}

// withDefaults returns the options with defaults.
func (o LockOptions) withDefaults() LockOptions {
	o.Key = cmp.Or(o.Key, DefaultLockKey)
	o.Expiry = cmp.Or(o.Expiry, DefaultLockExpiry)
	return o
}

// extend is the time between extensions by a living holder: one may fail, and the lock is still held at the next.
func (o LockOptions) extend() time.Duration { return o.Expiry / 3 }

// extendRetry is the pause before an extension that failed is retried, while the lock
// has not expired.
const extendRetry = time.Second

// availableTimeout limits the check whether the lock can be taken.
const availableTimeout = 2 * time.Second

// answerTime is how long the server may take to answer a request about a lock with this expiry.
// redsync's own limit, a twentieth of the expiry, is 150 ms for 3 s, which a busy machine may need to
// connect.
func answerTime(expiry time.Duration) time.Duration { return min(expiry/3, 3*time.Second) }

// lease is a lock that this process has until a time.
type lease struct {
	until time.Time
	// extend extends the lock by its expiry. The error wraps ErrLockLost if the lock is lost. After any other error
	// the lock may be extended again.
	extend  func(ctx context.Context) error
	release func(ctx context.Context) // gives the lock back; if it fails, the lock expires
}

// hold runs work while it extends the lock, and gives the lock back.
func (o LockOptions) hold(ctx context.Context, l *lease, work func(ctx context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		o.keep(held, l, stop, lose)
	}()

	err := work(held) //mutant:sweep-without-lock

	close(stop)
	<-kept // now keep does not use the lock any more
	cause := context.Cause(held)
	lose(nil)
	// A sweep that was cancelled should still release the lock.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime(o.Expiry))
	defer cancel()
	l.release(ctx)
	if errors.Is(cause, ErrLockLost) {
		return errors.Join(cause, err)
	}
	return err
}

// keep extends the lock until stop. It calls lose as soon as the lock may be gone:
// when the server says so, or when no extension succeeded before the expiry. An
// extension's context ends no later than the lock. A client of Redis needs
// ContextTimeoutEnabled so that this context also ends a connection that hangs.
func (o LockOptions) keep(ctx context.Context, l *lease, stop <-chan struct{}, lose context.CancelCauseFunc) {
	timer := time.NewTimer(o.extend()) //mutant:lock-not-extended
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		began, trusted := time.Now(), l.until
		// A hanging connection must not use up the time for other attempts.
		extending, cancel := context.WithTimeout(ctx, min(o.extend(), time.Until(trusted)))
		err := l.extend(extending)
		cancel()
		switch {
		case err == nil:
			l.until = began.Add(o.Expiry / 100 * 99) // as redsync does: the server's clock may be faster
			timer.Reset(o.extend())
		case errors.Is(err, ErrLockLost):
			lose(err)
			return
		case time.Until(trusted) <= 0:
			lose(fmt.Errorf("%w: %s could not be extended in time: %w", ErrLockLost, o.Key, err))
			return
		default:
			timer.Reset(min(extendRetry, o.extend(), max(time.Until(trusted), 0)))
		}
	}
}

// lockInterval is the time between two checks of the lock server.
const lockInterval = 15 * time.Second

// watchLock checks until ctx ends whether the lock server takes writes, since the lock itself is taken
// only once in a period.
func (c *Compensator) watchLock(ctx context.Context) {
	l, ok := c.o.Lock.(interface{ Available(context.Context) error })
	if !ok {
		return
	}
	for ctx.Err() == nil {
		if err := l.Available(ctx); ctx.Err() == nil {
			stuck := errors.Is(err, ErrLockStuck)
			c.metrics.lockAvailable.Set(zeroOrOne(err == nil || stuck))
			c.metrics.lockStuck.Set(zeroOrOne(stuck))
			c.o.LockChecked(err)
		}
		retry.Sleep(ctx, lockInterval)
	}
}

// withLock runs work under the lock. It runs work without the lock if there is none,
// if the lock server is unavailable, or if the lock is stuck: the lock only saves
// work, correctness does not depend on it. work gets the value of Report.Lock. If
// staggered is set, withLock waits for a random time before it works without the lock.
// All processes notice a lock failure at the same time, and the first may have
// finished before the next one starts.
func (c *Compensator) withLock(ctx context.Context, lock Lock, staggered bool, work func(ctx context.Context, lockState string) error) error {
	if lock == nil {
		return work(ctx, "none")
	}
	err := c.holdLock(ctx, lock, func(ctx context.Context) error { return work(ctx, "held") })
	if ctx.Err() != nil {
		return err
	}
	c.metrics.lockAvailable.Set(zeroOrOne(!errors.Is(err, ErrLockUnavailable)))
	instead := "unavailable" //mutant:no-redis-no-sweep
	switch {
	case errors.Is(err, ErrLockUnavailable):
		c.o.Logger.Warn("lock server unavailable, sweeping without the lock", "err", err)
	case errors.Is(err, ErrLockStuck):
		c.o.Logger.Error("lock stuck, sweeping without it", "err", err)
		instead = "stuck"
	default:
		return err
	}
	if staggered {
		retry.Sleep(ctx, rand.N(c.schedule.pollInterval()/4))
	}
	return work(ctx, instead)
}

// holdLock calls lock.Hold. A lock that does not begin the work in time, or panics before, counts as
// unavailable.
func (c *Compensator) holdLock(ctx context.Context, lock Lock, work func(ctx context.Context) error) error {
	holding, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(callTimeout, cancel)
	defer late.Stop()
	hang := time.AfterFunc(callTimeout+stopTimeout, func() { c.o.OnHang("the method Hold of the lock hangs and ignores the end of its context") })
	defer hang.Stop()
	began := false
	err := c.calls.catch("the lock's method Hold", func() error {
		return lock.Hold(holding, func(ctx context.Context) error {
			began = true
			late.Stop()
			hang.Stop()
			defer hang.Reset(callTimeout + stopTimeout) // to give the lock back
			return work(ctx)
		})
	})
	if panicked := errors.As(err, new(*retry.PanicError)); !began && (panicked || holding.Err() != nil && ctx.Err() == nil) {
		err = fmt.Errorf("%w: %w", ErrLockUnavailable, err)
	}
	return err
}
