package compensator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"orderclose/internal/partition"
)

// Defaults of LockOptions.
const (
	DefaultLockKey    = "lock:scan_unpaid_orders"
	DefaultLockExpiry = 60 * time.Second
	DefaultLockExtend = 20 * time.Second
)

// extendRetry is how soon an extension that Redis did not answer is tried again
// while the lock is still to be trusted.
const extendRetry = time.Second

// availableTimeout is how long Redis may take to say that it is there.
const availableTimeout = 2 * time.Second

// LockOptions for a RedisLock. Client must be set.
type LockOptions struct {
	Client redis.UniversalClient
	Key    string        // default DefaultLockKey
	Expiry time.Duration // for how long a dead holder keeps others out; default DefaultLockExpiry
	Extend time.Duration // how often a living one extends; default DefaultLockExtend
}

// RedisLock is a Lock in Redis, by redsync. It is not a fence: a holder that was
// paused may believe in it for a moment too long. Closing is a compare-and-set,
// so what it does then is harmless.
type RedisLock struct {
	o    LockOptions
	sync *redsync.Redsync
}

// NewLock returns a RedisLock, or says what is wrong with the options.
func NewLock(o LockOptions) (*RedisLock, error) {
	if o.Client == nil {
		return nil, errors.New("compensator: LockOptions need a Client")
	}
	if o.Key == "" {
		o.Key = DefaultLockKey
	}
	if o.Expiry == 0 {
		o.Expiry = DefaultLockExpiry
	}
	if o.Extend == 0 {
		o.Extend = DefaultLockExtend
	}
	if o.Extend*2 > o.Expiry {
		return nil, fmt.Errorf("compensator: the lock expires after %v and is extended each %v: extend at least twice as often", o.Expiry, o.Extend)
	}
	return &RedisLock{o, redsync.New(goredis.NewPool(o.Client))}, nil
}

// Available reports whether Redis answers, and whether the lock can be released: it
// returns an error that is ErrLockUnavailable, or ErrLockStuck.
func (l *RedisLock) Available(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, availableTimeout)
	defer cancel()
	if err := l.o.Client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrLockUnavailable, err)
	}
	return l.stuck(ctx)
}

// maxLockExpiry is longer than any lock.expiry that makes sense: a dead holder keeps the
// others out for as long. Processes whose lock.expiry differs, as while it is being
// changed, respect each other's locks.
const maxLockExpiry = time.Hour

// stuck returns an error that is ErrLockStuck if the key never expires, or later than
// any lock. No living process holds such a lock: each one sets the key together with its
// expiry.
func (l *RedisLock) stuck(ctx context.Context) error {
	ttl, err := l.o.Client.PTTL(ctx, l.o.Key).Result()
	const never = -1 // what Redis says of a key without expiry
	switch {
	case err != nil:
		return nil // who may not ask cannot tell
	case ttl == never:
		return fmt.Errorf("%w: the key %s has no expiry, delete it: DEL %s", ErrLockStuck, l.o.Key, l.o.Key)
	case ttl > max(maxLockExpiry, l.o.Expiry):
		return fmt.Errorf("%w: the key %s expires in %v, and no lock lasts that long, delete it: DEL %s", ErrLockStuck, l.o.Key, ttl, l.o.Key)
	}
	return nil
}

// Hold implements Lock.
func (l *RedisLock) Hold(ctx context.Context, work func(ctx context.Context) error) error {
	mutex := l.sync.NewMutex(l.o.Key, redsync.WithExpiry(l.o.Expiry), redsync.WithTries(1))
	if err := mutex.TryLockContext(ctx); err != nil {
		if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
			if stuck := l.stuck(ctx); stuck != nil {
				return stuck
			}
			return fmt.Errorf("%w: it holds %s", ErrHeld, l.o.Key)
		}
		return fmt.Errorf("%w: %w", ErrLockUnavailable, err)
	}
	held, lose := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		l.keep(held, mutex, stop, lose)
	}()

	err := work(held)

	close(stop)
	<-kept // from here on the mutex is ours again
	cause := context.Cause(held)
	lose(nil)
	if errors.Is(cause, ErrLockLost) {
		return errors.Join(cause, err)
	}
	// A sweep that was cancelled should still give the lock back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	mutex.UnlockContext(ctx) // at worst it expires
	return err
}

// keep extends the lock until stop, and calls lose as soon as it may be gone:
// when Redis says so, or when it has not answered for as long as the lock lasts.
// So that one that hangs is noticed in time the client needs
// ContextTimeoutEnabled: an extension's context ends when the lock does at the latest.
func (l *RedisLock) keep(ctx context.Context, mutex *redsync.Mutex, stop <-chan struct{}, lose context.CancelCauseFunc) {
	timer := time.NewTimer(l.o.Extend)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		trusted := mutex.Until()
		// A connection that hangs must not use up all the time there is for others.
		extending, cancel := context.WithTimeout(ctx, min(l.o.Extend, time.Until(trusted)))
		ok, err := mutex.ExtendContext(extending)
		cancel()
		switch {
		case ok:
			timer.Reset(l.o.Extend)
		case err == nil || errors.As(err, new(*redsync.ErrTaken)):
			lose(fmt.Errorf("%w: somebody else has %s, or it was deleted", ErrLockLost, l.o.Key))
			return
		case time.Until(trusted) <= 0:
			lose(fmt.Errorf("%w: %s could not be extended in time: %w", ErrLockLost, l.o.Key, err))
			return
		default:
			timer.Reset(min(extendRetry, l.o.Extend, max(time.Until(trusted), 0)))
		}
	}
}

// lookAtLock tells whether the lock's server answers, as it is asked for the lock
// itself but once in a period.
func (c *Compensator) lookAtLock(ctx context.Context) {
	if l, ok := c.o.Lock.(interface{ Available(context.Context) error }); ok {
		if err := l.Available(ctx); ctx.Err() == nil {
			stuck := errors.Is(err, ErrLockStuck)
			c.o.Metrics.LockAvailable(err == nil || stuck)
			c.o.Metrics.LockStuck(stuck)
		}
	}
}

// guarded does work under the lock, and tells it what Report.Lock is: without a lock if
// there is none, if its server is unavailable, or if it is stuck. The lock saves work, no
// order depends on it. If patient, it waits a moment before it works without: all
// processes find that out at the same time, and the first may have finished when the
// next one asks.
func (c *Compensator) guarded(ctx context.Context, lock Lock, patient bool, work func(ctx context.Context, lock string) error) error {
	if lock == nil {
		return work(ctx, "none")
	}
	err := lock.Hold(ctx, func(ctx context.Context) error { return work(ctx, "held") })
	if ctx.Err() != nil {
		return err
	}
	c.o.Metrics.LockAvailable(!errors.Is(err, ErrLockUnavailable))
	instead := "unavailable"
	switch {
	case errors.Is(err, ErrLockUnavailable):
		c.o.Logger.Warn("sweeping without the lock: repeats are harmless, but cost", "err", err)
	case errors.Is(err, ErrLockStuck):
		c.o.Logger.Error("sweeping without the lock, because it is stuck: repeats are harmless, but cost", "err", err)
		instead = "stuck"
	default:
		return err
	}
	if patient {
		partition.Sleep(ctx, rand.N(c.schedule.ask()/4))
	}
	return work(ctx, instead)
}
