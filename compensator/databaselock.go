package compensator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
	o, err := o.withDefaults()
	return &DatabaseLock{o}, err
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
		return fmt.Errorf("%w: %w", ErrLockLost, err) // a connection that failed once is not used again
	}
	return &lease{until, extend, release}, nil
}
