package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"orderclose"
)

// A transaction that lost against another one is tried again: at most maxTries
// times and not beyond retryFor, which one lock wait (lockTimeout) uses up by
// itself: whoever holds a row for that long may hold it for hours, and the other
// orders of a batch should not wait for it.
const (
	maxTries  = 10
	retryFor  = 2 * time.Second
	firstWait = 2 * time.Millisecond
	lastWait  = 250 * time.Millisecond
)

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// errCommitLost says that a commit failed in a way that leaves open whether it was
// done.
var errCommitLost = errors.New("the commit had no answer")

// transact runs fn in a READ COMMITTED transaction, and all of it again if it
// lost against another one, so fn must begin from nothing each time. The error
// is fn's, or wraps orderclose.ErrUnavailable, or orderclose.ErrContended if it
// lost each time. It wraps errCommitLost too if only the commit failed, in a way
// other than losing.
//
// All writing goes through it, single statements too: a commit is where a
// cancelled context shows, whatever the driver made of it before.
func (s *Store) transact(ctx context.Context, fn func(tx *gorm.DB) error) error {
	began := time.Now()
	for try := 1; ; try++ {
		done := false
		err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			err := fn(tx)
			done = err == nil
			return err
		}, readCommitted)
		if err == nil {
			return nil
		}
		if fault := s.fault(ctx, err); fault != FaultRetry {
			if err = s.explain(ctx, err); done {
				err = fmt.Errorf("%w: %w", errCommitLost, err)
			}
			return err
		}
		if try == maxTries || time.Since(began) >= retryFor {
			return fmt.Errorf("%w: %w", orderclose.ErrContended, err)
		}
		if !sleep(ctx, backoff(try)) {
			return unavailable(ctx, err)
		}
	}
}

// backoff is how long to wait after the try-th failure: doubling, and anything
// between half of it and all, so that those who met once do not meet again.
func backoff(try int) time.Duration {
	d := min(firstWait<<(try-1), lastWait)
	return d/2 + rand.N(d/2)
}

// sleep waits for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
