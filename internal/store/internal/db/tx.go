package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

// A transaction that lost a deadlock or a lock wait is tried again: at most maxTries attempts in
// all, the first included, and no new attempt after retryFor. One lock wait (lockTimeout) uses up
// retryFor: a transaction that holds a row for so long may hold it for hours, and the other
// orders of a batch must not wait for it.
const (
	maxTries  = 10
	retryFor  = 2 * time.Second
	firstWait = 2 * time.Millisecond
	lastWait  = 250 * time.Millisecond
)

var (
	ReadCommitted   = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	ReadUncommitted = &sql.TxOptions{Isolation: sql.LevelReadUncommitted} // to look for locks only
)

// Transact runs fn in a READ COMMITTED transaction. It runs fn again if the transaction lost a
// deadlock or a lock wait, so fn must not keep state between runs. The error is the error of
// fn, or wraps orderclose.ErrUnavailable, or orderclose.ErrContended after the last retry. If
// only the answer to the commit was lost, the changes may be there.
//
// It begins no transaction on a server that is read-only: see MayWrite.
//
// Except Dispatch, whose publish must not run again, and Writable, which rolls back, all writes
// to orders and to the tables of the pipeline use Transact, single statements too. So a cancelled
// context always fails the commit, even if the driver ignored the cancellation before.
func (s *Handle) Transact(ctx context.Context, fn func(tx *gorm.DB) error) error {
	began := time.Now()
	if err := s.MayWrite(ctx); err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := s.Gorm.WithContext(ctx).Transaction(fn, ReadCommitted)
		if err == nil || errors.Is(err, orderclose.ErrContended) {
			return err // the caller tries again in another way
		}
		if fault := s.Fault(ctx, err); fault != FaultRetry {
			return s.Explain(ctx, err)
		}
		if try == maxTries || time.Since(began) >= cmp.Or(s.RetryFor, retryFor) {
			return fmt.Errorf("%w: %w", orderclose.ErrContended, err)
		}
		if !retry.Sleep(ctx, backoff(try)) {
			return Unavailable(ctx, err)
		}
	}
}

const (
	// readOnlyWithin bounds NotReadOnly.
	readOnlyWithin = 5 * time.Second
	// writableFor is for how long MayWrite knows that the server takes writes.
	writableFor = 15 * time.Second
)

// NotReadOnly returns an error if the server does not answer or is read-only. It is one statement, and takes at most 5 s. The error wraps
// orderclose.ErrUnavailable.
func (s *Handle) NotReadOnly(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readOnlyWithin)
	defer cancel()
	var readOnly bool
	err := s.Gorm.WithContext(ctx).Raw(s.Dialect.ReadOnly).Scan(&readOnly).Error
	switch {
	case err != nil:
		return s.FailedTo(ctx, err, "ask whether the server is read-only")
	case readOnly:
		s.takesWrites.Store(nil)
		s.DropIdle()
		return fmt.Errorf("%w: %w: the server is read-only", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault)
	}
	s.takesWrites.Store(new(time.Now()))
	return nil
}

// MayWrite is NotReadOnly, which it asks again 15 s after the server took writes, and each time while it takes none. The server itself
// refuses no write of a privileged user: such a user would close orders on a replica of MySQL, which then differs from its primary.
func (s *Handle) MayWrite(ctx context.Context) error {
	if known := s.takesWrites.Load(); s.Dialect.OneWriter || known != nil && time.Since(*known) < writableFor {
		return nil
	}
	return s.NotReadOnly(ctx)
}

// backoff returns the wait after the try-th failure: it doubles, with a jitter of up to half,
// so that two transactions do not collide again.
func backoff(try int) time.Duration {
	d := min(firstWait<<(try-1), lastWait)
	return d/2 + rand.N(d/2)
}
