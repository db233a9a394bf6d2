package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Database is a database with rows of leases.
type Database interface {
	// TakeLease takes a lease that nobody has or that has expired, or extends that of the holder, by the database's clock. It returns
	// false if another holder has it.
	TakeLease(ctx context.Context, name, holder string, expiry time.Duration) (held bool, err error)
	// DropLease ends the lease of the holder.
	DropLease(ctx context.Context, name, holder string) error
}

// Lease is a Lock in a row of the database. It is no fence, as Redis.
type Lease struct{ o Options }

// NewLease returns a Lease, or an error if the options are invalid.
func NewLease(o Options) (*Lease, error) {
	if o.Database == nil || o.Holder == "" {
		return nil, errors.New("lock: Options need a Database and a Holder")
	}
	return &Lease{o.withDefaults()}, nil
}

// Hold implements Lock.
func (l *Lease) Hold(ctx context.Context, work func(ctx context.Context) error) error {
	began := time.Now()
	switch held, err := l.take(ctx); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case !held:
		return fmt.Errorf("%w: lease %s", ErrHeld, l.o.Key)
	}
	extend := func(ctx context.Context) error {
		held, err := l.take(ctx)
		if err == nil && !held {
			return fmt.Errorf("%w: another process has the lease %s", ErrLost, l.o.Key) //mutant:lost-lease-kept
		}
		return err
	}
	release := func(ctx context.Context) { _ = l.o.Database.DropLease(ctx, l.o.Key, l.o.Holder) } // otherwise it expires
	return l.o.hold(ctx, &lease{began.Add(l.o.Expiry / 100 * 99), extend, release}, work)
}

func (l *Lease) take(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return l.o.Database.TakeLease(ctx, l.o.Key, l.o.Holder, l.o.Expiry)
}
