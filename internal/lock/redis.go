package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// Redis is a Lock in Redis, by redsync. It is not a fence: a holder that was
// paused may believe for a moment too long that it has the lock, and a replica that takes over may not know
// the lock yet. This is harmless, because closing is a compare-and-set.
type Redis struct {
	o    Options
	sync *redsync.Redsync
}

// NewRedis returns a Redis lock. The options need a Client.
func NewRedis(o Options) *Redis {
	return &Redis{o.withDefaults(), redsync.New(goredis.NewPool(o.Client))}
}

// refusedWrite says why Redis answers and takes no write; "" for any other error.
func refusedWrite(err error) string {
	for code, why := range map[string]string{
		"OOM": "its memory is full: ", "MISCONF": "it cannot save to its disk: ", "READONLY": "it is a read-only replica: ",
	} {
		if strings.Contains(err.Error(), code+" ") {
			return why
		}
	}
	return ""
}

// unavailable returns the error for a Redis that took no lock, or did not extend one, because of err.
func unavailable(err error) error {
	if text := err.Error(); strings.Contains(text, "NOPERM ") || strings.Contains(text, "unknown command") {
		return fmt.Errorf("%w: %w: allow the commands SET, EVAL, EVALSHA, GET, DEL and PEXPIRE: %w", ErrUnavailable, ErrRefused, err)
	}
	return fmt.Errorf("%w: %s%w", ErrUnavailable, refusedWrite(err), err)
}

// mayExtend returns an error if Redis would not extend a lock, such as without the right to EVAL. Otherwise each process that takes the lock would
// lose it again. The script finds no lock of this process, and changes nothing.
func mayExtend(ctx context.Context, mutex *redsync.Mutex) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := mutex.ExtendContext(ctx); err != nil && !errors.As(err, new(*redsync.ErrTaken)) {
		return unavailable(err)
	}
	return nil
}

// stuck returns an error that wraps ErrStuck if the key never expires, or expires
// later than any lock. No living process holds such a lock, because each process sets
// the key together with its expiry.
func (l *Redis) stuck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	ttl, err := l.o.Client.PTTL(ctx, l.o.Key).Result()
	const never = -1 // Redis's answer for a key without expiry
	switch {
	case err != nil:
		return nil // without the right to ask, assume that it is not stuck
	case ttl == never: //mutant:eternal-lock-key
		return fmt.Errorf("%w: the key %s has no expiry, delete it: DEL %s", ErrStuck, l.o.Key, l.o.Key)
	case ttl > l.o.Expiry:
		return fmt.Errorf("%w: the key %s expires in %v, which is longer than any lock, delete it: DEL %s", ErrStuck, l.o.Key, ttl, l.o.Key)
	}
	return nil
}

// Hold implements Lock. A Redis that gives no answer within a second, or that takes no write, is unavailable.
func (l *Redis) Hold(ctx context.Context, work func(ctx context.Context) error) error {
	mutex := l.sync.NewMutex(l.o.Key, redsync.WithExpiry(l.o.Expiry), redsync.WithTries(1),
		redsync.WithTimeoutFactor(answerTime.Seconds()/l.o.Expiry.Seconds()))
	if err := mayExtend(ctx, mutex); err != nil {
		return err
	}
	if err := mutex.TryLockContext(ctx); err != nil {
		if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
			if stuck := l.stuck(ctx); stuck != nil {
				return stuck
			}
			return fmt.Errorf("%w: key %s", ErrHeld, l.o.Key)
		}
		return unavailable(err)
	}
	extend := func(ctx context.Context) error {
		ok, err := mutex.ExtendContext(ctx)
		if !ok && (err == nil || errors.As(err, new(*redsync.ErrTaken))) {
			return fmt.Errorf("%w: another process has %s, or it was deleted", ErrLost, l.o.Key)
		}
		return err
	}
	return l.o.hold(ctx, &lease{mutex.Until(), extend, func(ctx context.Context) { _, _ = mutex.UnlockContext(ctx) }}, work)
}
