package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/retry"
)

// Defaults of LockOptions.
const (
	DefaultLockKey    = "lock:scan_unpaid_orders"
	DefaultLockExpiry = 60 * time.Second
	DefaultLockExtend = 20 * time.Second
)

// extendRetry is the pause before an extension that failed is retried, while the lock
// has not expired.
const extendRetry = time.Second

// availableTimeout limits the check whether Redis is available.
const availableTimeout = 2 * time.Second

// LockOptions configure a RedisLock. Client is required.
type LockOptions struct {
	// Client must have ContextTimeoutEnabled in its options. Otherwise an extension on a
	// connection that hangs may outlast the lock.
	Client redis.UniversalClient
	Key    string        // default DefaultLockKey
	Expiry time.Duration // how long a dead holder blocks other processes; default DefaultLockExpiry
	Extend time.Duration // time between extensions by a living holder; default DefaultLockExtend
}

// RedisLock is a Lock in Redis, by redsync. It is not a fence: a holder that was
// paused may believe for a moment too long that it has the lock. This is harmless,
// because closing is a compare-and-set.
type RedisLock struct {
	o    LockOptions
	sync *redsync.Redsync
}

// NewLock returns a RedisLock, or an error if the options are invalid.
func NewLock(o LockOptions) (*RedisLock, error) {
	if o.Client == nil {
		return nil, errors.New("compensator: LockOptions need a Client")
	}
	o.Key = cmp.Or(o.Key, DefaultLockKey)
	o.Expiry = cmp.Or(o.Expiry, DefaultLockExpiry)
	o.Extend = cmp.Or(o.Extend, DefaultLockExtend)
	if o.Extend*2 > o.Expiry {
		return nil, fmt.Errorf("compensator: the lock expires after %v and is extended each %v: extend at least twice as often", o.Expiry, o.Extend)
	}
	return &RedisLock{o, redsync.New(goredis.NewPool(o.Client))}, nil
}

// Available checks that Redis takes writes, by a key beside that of the lock, and that the lock is not
// stuck. Redis answers a PING also when it refuses every write, because its memory is full (OOM), it
// cannot save to its disk (MISCONF), or it is a replica (READONLY). The error wraps ErrLockUnavailable
// or ErrLockStuck.
func (l *RedisLock) Available(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, availableTimeout)
	defer cancel()
	if err := l.o.Client.Set(ctx, l.o.Key+":probe", 1, l.o.Expiry).Err(); err != nil {
		return fmt.Errorf("%w: %s%w", ErrLockUnavailable, refusedWrite(err), err)
	}
	return l.stuck(ctx)
}

// refusedWrite says why Redis answers and takes no write; "" for any other error.
func refusedWrite(err error) string {
	for code, why := range map[string]string{
		"OOM": "its memory is full: ", "MISCONF": "it cannot save to its disk: ", "READONLY": "it is a read-only replica: ",
	} {
		if strings.HasPrefix(err.Error(), code+" ") {
			return why
		}
	}
	return ""
}

// maxLockExpiry is longer than any reasonable lock.expiry, since a dead holder blocks
// other processes that long. Processes with different lock.expiry, as during a change
// of the configuration, respect each other's locks.
const maxLockExpiry = time.Hour

// stuck returns an error that wraps ErrLockStuck if the key never expires, or expires
// later than any lock. No living process holds such a lock, because each process sets
// the key together with its expiry.
func (l *RedisLock) stuck(ctx context.Context) error {
	ttl, err := l.o.Client.PTTL(ctx, l.o.Key).Result()
	const never = -1 // Redis's answer for a key without expiry
	switch {
	case err != nil:
		return nil // without the right to ask, assume that it is not stuck
	case ttl == never:
		return fmt.Errorf("%w: the key %s has no expiry, delete it: DEL %s", ErrLockStuck, l.o.Key, l.o.Key)
	case ttl > max(maxLockExpiry, l.o.Expiry):
		return fmt.Errorf("%w: the key %s expires in %v, which is longer than any lock, delete it: DEL %s", ErrLockStuck, l.o.Key, ttl, l.o.Key)
	}
	return nil
}

// answerTime is how long Redis may take to answer a request about a lock with this expiry. The
// library's own limit, a twentieth of the expiry, is 150 ms for 3 s, which a busy machine may need to
// connect.
func answerTime(expiry time.Duration) time.Duration { return min(expiry/3, 3*time.Second) }

// Hold implements Lock.
func (l *RedisLock) Hold(ctx context.Context, work func(ctx context.Context) error) error {
	mutex := l.sync.NewMutex(l.o.Key, redsync.WithExpiry(l.o.Expiry), redsync.WithTries(1),
		redsync.WithTimeoutFactor(answerTime(l.o.Expiry).Seconds()/l.o.Expiry.Seconds()))
	if err := mutex.TryLockContext(ctx); err != nil {
		if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
			if stuck := l.stuck(ctx); stuck != nil {
				return stuck
			}
			return fmt.Errorf("%w: key %s", ErrHeld, l.o.Key)
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
	<-kept // now keep does not use the mutex any more
	cause := context.Cause(held)
	lose(nil)
	if errors.Is(cause, ErrLockLost) {
		return errors.Join(cause, err)
	}
	// A sweep that was cancelled should still release the lock.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime(l.o.Expiry))
	defer cancel()
	mutex.UnlockContext(ctx) // if this fails, the lock expires
	return err
}

// keep extends the lock until stop. It calls lose as soon as the lock may be gone:
// when Redis says so, or when no extension succeeded before the expiry. An
// extension's context ends no later than the lock. The client needs
// ContextTimeoutEnabled so that this context also ends a connection that hangs.
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
		// A hanging connection must not use up the time for other attempts.
		extending, cancel := context.WithTimeout(ctx, min(l.o.Extend, time.Until(trusted)))
		ok, err := mutex.ExtendContext(extending)
		cancel()
		switch {
		case ok:
			timer.Reset(l.o.Extend)
		case err == nil || errors.As(err, new(*redsync.ErrTaken)):
			lose(fmt.Errorf("%w: another process has %s, or it was deleted", ErrLockLost, l.o.Key))
			return
		case time.Until(trusted) <= 0:
			lose(fmt.Errorf("%w: %s could not be extended in time: %w", ErrLockLost, l.o.Key, err))
			return
		default:
			timer.Reset(min(extendRetry, l.o.Extend, max(time.Until(trusted), 0)))
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
	instead := "unavailable"
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
