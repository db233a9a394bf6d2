package compensator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// RedisLock is a Lock in Redis, by redsync. It is not a fence: a holder that was
// paused may believe for a moment too long that it has the lock, and a replica that takes over may not know
// the lock yet. This is harmless, because closing is a compare-and-set.
type RedisLock struct {
	o    LockOptions
	sync *redsync.Redsync
}

// NewLock returns a RedisLock, or an error if the options are invalid.
func NewLock(o LockOptions) (*RedisLock, error) {
	if o.Client == nil {
		return nil, errors.New("compensator: LockOptions need a Client")
	}
	return &RedisLock{o.withDefaults(), redsync.New(goredis.NewPool(o.Client))}, nil
}

// Available checks that Redis takes writes, by a key beside that of the lock, and that the lock is not
// stuck. Redis answers a PING also when it refuses every write, because its memory is full (OOM), it
// cannot save to its disk (MISCONF), or it is a replica (READONLY). The error wraps ErrLockUnavailable
// or ErrLockStuck.
func (l *RedisLock) Available(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, availableTimeout)
	defer cancel()
	if err := l.o.Client.Set(ctx, l.o.Key+":probe", 1, l.o.Expiry).Err(); err != nil { //mutant:readonly-redis-available
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

// maxLockExpiry is longer than the expiry of any lock, since a dead holder blocks
// other processes that long. Processes with different expiries, as during a change
// of compensator.period, respect each other's locks.
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
	case ttl == never: //mutant:eternal-lock-key
		return fmt.Errorf("%w: the key %s has no expiry, delete it: DEL %s", ErrLockStuck, l.o.Key, l.o.Key)
	case ttl > max(maxLockExpiry, l.o.Expiry):
		return fmt.Errorf("%w: the key %s expires in %v, which is longer than any lock, delete it: DEL %s", ErrLockStuck, l.o.Key, ttl, l.o.Key)
	}
	return nil
}

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
	extend := func(ctx context.Context) error {
		ok, err := mutex.ExtendContext(ctx)
		if !ok && (err == nil || errors.As(err, new(*redsync.ErrTaken))) {
			return fmt.Errorf("%w: another process has %s, or it was deleted", ErrLockLost, l.o.Key)
		}
		return err
	}
	return l.o.hold(ctx, &lease{mutex.Until(), extend, func(ctx context.Context) { _, _ = mutex.UnlockContext(ctx) }}, work)
}

// LockDatabase is a database with locks that belong to a connection.
type LockDatabase interface {
	// TakeLock connects, and takes the lock with this name. If another connection has the lock, held and release
	// are nil. held returns an error unless the connection still has the lock: then the lock is lost.
	// release gives it back and closes the connection; it is called once. The server must close a
	// connection that sends nothing for as long as silence, such as that of a host that is gone.
	TakeLock(ctx context.Context, name string, silence time.Duration) (held func(context.Context) error, release func(context.Context), err error)
}

// DatabaseLock is a Lock in the database, on a connection of its own. The lock ends with its connection. It is
// not a fence: a holder notices the end of its connection at the next extension. This is harmless, because
// closing is a compare-and-set.
type DatabaseLock struct{ o LockOptions }

// NewDatabaseLock returns a DatabaseLock, or an error if the options are invalid.
func NewDatabaseLock(o LockOptions) (*DatabaseLock, error) {
	if o.Database == nil {
		return nil, errors.New("compensator: LockOptions need a Database")
	}
	return &DatabaseLock{o.withDefaults()}, nil
}

// Available checks that the database gives locks, by taking one beside that of the sweep. The error wraps
// ErrLockUnavailable.
func (l *DatabaseLock) Available(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, availableTimeout)
	defer cancel()
	probe := *l
	probe.o.Key += ":probe"
	taken, err := probe.take(ctx)
	if errors.Is(err, ErrHeld) { // another process is checking
		return nil
	}
	if err == nil {
		taken.release(ctx)
	}
	return err
}

// Hold implements Lock.
func (l *DatabaseLock) Hold(ctx context.Context, work func(ctx context.Context) error) error {
	taking, cancel := context.WithTimeout(ctx, answerTime(l.o.Expiry))
	taken, err := l.take(taking)
	cancel()
	if err != nil {
		return err
	}
	return l.o.hold(ctx, taken, work)
}

func (l *DatabaseLock) take(ctx context.Context) (*lease, error) {
	until := time.Now().Add(l.o.Expiry) // the server closes a connection that sends nothing until then
	held, release, err := l.o.Database.TakeLock(ctx, l.o.Key, l.o.Expiry)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrLockUnavailable, err)
	case held == nil:
		return nil, fmt.Errorf("%w: key %s", ErrHeld, l.o.Key)
	}
	extend := func(ctx context.Context) error {
		err := held(ctx)
		if err == nil || errors.Is(err, context.Canceled) { // then the process stops, and the work ends
			return err
		}
		return fmt.Errorf("%w: %w", ErrLockLost, err) // a connection that failed once is not used again //mutant:lost-database-lock
	}
	return &lease{until, extend, release}, nil
}
