// Package lock has the lock of the compensators: in Redis, by redsync, or in a row of the database. A process that holds a lock extends it.
// The lock saves work, and nothing depends on it.
//
//	hold.go   what a lock is, and how it is extended
//	redis.go  the lock in Redis
//	lease.go  the lock in a row of the database
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Lock keeps two processes from the same work. Hold calls work while it
// holds the lock; the context of work ends when the lock may be lost. Hold returns,
// without calling work, an error that wraps ErrHeld if another process has the lock,
// ErrUnavailable if the lock server does not answer, or ErrStuck if no
// process has the lock and it cannot be taken. It returns ErrLost if the lock was
// lost while work ran; the error also wraps ErrUnavailable if the server did not extend the lock.
type Lock interface {
	Hold(ctx context.Context, work func(ctx context.Context) error) error
}

// Errors of a Lock.
var (
	ErrHeld        = errors.New("another process has the lock")
	ErrUnavailable = errors.New("the lock server is unavailable")
	// ErrRefused is wrapped beside ErrUnavailable if the server answers, and this user may not take or extend a lock.
	ErrRefused = errors.New("this user of the lock server may not use the lock")
	ErrStuck   = errors.New("the lock is held by no process")
	ErrLost    = errors.New("the lock was lost")
)

// Defaults of Options.
const (
	DefaultKey = "lock:scan_unpaid_orders"
	// DefaultExpiry is how long a holder that was killed keeps others from the work.
	DefaultExpiry = 15 * time.Second
)

// Options configure a Redis or a Lease, which require Client or Database.
type Options struct {
	// Client must have ContextTimeoutEnabled in its options. Otherwise an extension on a
	// connection that hangs may outlast the lock.
	Client   redis.UniversalClient
	Database Database
	Holder   string        // identifies this process in the row of a Lease; required there
	Key      string        // default DefaultKey
	Expiry   time.Duration // how long a dead holder blocks other processes; default DefaultExpiry. A living one extends it each third of it
}

// withDefaults returns the options with defaults.
func (o Options) withDefaults() Options {
	o.Key = cmp.Or(o.Key, DefaultKey)
	o.Expiry = cmp.Or(o.Expiry, DefaultExpiry)
	return o
}

// extend is the time between extensions by a living holder: one may fail, and the lock is still held at the next.
func (o Options) extend() time.Duration { return o.Expiry / 3 }

const (
	// answerTime is how long a server may take to answer a request about a lock. Then it counts as unavailable.
	answerTime = time.Second
	// extendRetry is the pause before an extension that failed is retried, while the lock
	// has not expired.
	extendRetry = time.Second
)

// lease is a lock that this process has until a time.
type lease struct {
	until time.Time
	// extend extends the lock by its expiry. The error wraps ErrLost if the lock is lost. After any other error
	// the lock may be extended again.
	extend  func(ctx context.Context) error
	release func(ctx context.Context) // gives the lock back; if it fails, the lock expires
}

// hold runs work while it extends the lock, and gives the lock back.
func (o Options) hold(ctx context.Context, l *lease, work func(ctx context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		o.keep(held, l, stop, lose)
	}()

	err := work(held) //mutant:work-without-lock

	close(stop)
	<-kept // now keep does not use the lock any more
	cause := context.Cause(held)
	lose(nil)
	// Work that was cancelled should still release the lock.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	l.release(ctx)
	if errors.Is(cause, ErrLost) {
		return errors.Join(cause, err)
	}
	return err
}

// keep extends the lock until stop. It calls lose as soon as the lock may be gone:
// when the server says so, or when no extension succeeded before the expiry. An
// extension's context ends no later than the lock. A client of Redis needs
// ContextTimeoutEnabled so that this context also ends a connection that hangs.
func (o Options) keep(ctx context.Context, l *lease, stop <-chan struct{}, lose context.CancelCauseFunc) {
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
		case errors.Is(err, ErrLost):
			lose(err)
			return
		case time.Until(trusted) <= 0:
			lose(fmt.Errorf("%w: %w: %s could not be extended in time: %w", ErrLost, ErrUnavailable, o.Key, err))
			return
		default:
			timer.Reset(min(extendRetry, o.extend(), max(time.Until(trusted), 0)))
		}
	}
}

// New returns the locks of the servers that the options name: that in Redis first.
func New(o Options) (locks []Lock, err error) {
	if o.Client != nil {
		locks = append(locks, NewRedis(o))
	}
	if o.Database == nil {
		return locks, nil
	}
	l, err := NewLease(o)
	return append(locks, l), err
}
