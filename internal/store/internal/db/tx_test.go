package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// scripted is a database that only answers COMMIT, with a given error.
type scripted struct{ commit error }

func (d *scripted) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *scripted) Driver() driver.Driver                        { return nil }
func (d *scripted) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("no statements") }
func (d *scripted) Close() error                                 { return nil }
func (d *scripted) Begin() (driver.Tx, error)                    { return d, nil }
func (d *scripted) Commit() error                                { return d.commit }
func (d *scripted) Rollback() error                              { return nil }

// BeginTx implements driver.ConnBeginTx and requires READ COMMITTED.
func (d *scripted) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	if sql.IsolationLevel(o.Isolation) != sql.LevelReadCommitted {
		return nil, errors.New("the transaction is not READ COMMITTED")
	}
	return d, nil
}

// inBubble runs test with a store on d, in a synctest bubble.
func inBubble(t *testing.T, d *scripted, test func(t *testing.T, s *Handle)) {
	synctest.Test(t, func(t *testing.T) {
		of := must.Get(gorm.Open(gormmysql.New(gormmysql.Config{Conn: sql.OpenDB(d), SkipInitializeWithVersion: true}), GormConfig()))(t)
		s := &Handle{Gorm: of, Dialect: MySQLDialect}
		s.takesWrites.Store(new(time.Now()))
		defer func() { _ = s.Close() }()
		test(t, s)
	})
}

var (
	deadlock = &mysql.MySQLError{Number: 1213, Message: "Deadlock found"}
	tooLong  = &mysql.MySQLError{Number: 1406, Message: "Data too long"}
	readOnly = &mysql.MySQLError{Number: 1290, Message: "running with --read-only"}
)

func TestTransact_RetriesAfterALostConflict(t *testing.T) {
	inBubble(t, &scripted{}, func(t *testing.T, s *Handle) {
		tries := 0
		err := s.Transact(t.Context(), func(*gorm.DB) error {
			if tries++; tries < maxTries {
				return deadlock
			}
			return nil
		})
		expect.That(t, err == nil && tries == maxTries, "after %d tries: %v; want success at try %d", tries, err, maxTries)
	})
}

func TestTransact_GivesUpAfterTheLastRetry(t *testing.T) {
	inBubble(t, &scripted{}, func(t *testing.T, s *Handle) {
		tries := 0
		err := s.Transact(t.Context(), func(*gorm.DB) error { tries++; return deadlock })
		expect.That(t, errors.Is(err, orderclose.ErrContended) && errors.Is(err, deadlock) && tries == maxTries,
			"after %d tries: %v; want ErrContended and the deadlock after %d", tries, err, maxTries)
		tries = 0
		began := time.Now()
		err = s.Transact(t.Context(), func(*gorm.DB) error { tries++; time.Sleep(retryFor / 2); return deadlock })
		if took := time.Since(began); !errors.Is(err, orderclose.ErrContended) || took > 2*retryFor {
			t.Errorf("with long lock waits: %v after %v and %d tries; want ErrContended soon after %v", err, took, tries, retryFor)
		}
	})
}

func TestTransact_RetriesOnlyALostConflict(t *testing.T) {
	inBubble(t, &scripted{}, func(t *testing.T, s *Handle) {
		for _, c := range []struct {
			err         error
			unavailable bool
		}{{tooLong, false}, {errors.New("some other"), false}, {readOnly, true}, {mysql.ErrInvalidConn, true}} {
			tries := 0
			err := s.Transact(t.Context(), func(*gorm.DB) error { tries++; return c.err })
			expect.That(t, tries == 1 && errors.Is(err, c.err) && errors.Is(err, orderclose.ErrUnavailable) == c.unavailable,
				"%v: %d tries, %v; want one, and unavailable %v", c.err, tries, err, c.unavailable)
		}
	})
}

func TestTransact_CancelEndsTheWait(t *testing.T) {
	inBubble(t, &scripted{}, func(t *testing.T, s *Handle) {
		ctx, cancel := context.WithCancel(t.Context())
		tries := 0
		err := s.Transact(ctx, func(*gorm.DB) error { tries++; cancel(); return deadlock })
		expect.That(t, tries == 1 && errors.Is(err, context.Canceled) && errors.Is(err, orderclose.ErrUnavailable),
			"after %d tries: %v; want context.Canceled after one", tries, err)
	})
}

func TestTransact_ACommitInDoubtBlamesNoOrder(t *testing.T) {
	for _, lost := range []error{driver.ErrBadConn, mysql.ErrInvalidConn} {
		inBubble(t, &scripted{commit: lost}, func(t *testing.T, s *Handle) {
			tries := 0
			err := s.Transact(t.Context(), func(*gorm.DB) error { tries++; return nil })
			expect.That(t, tries == 1 && errors.Is(err, orderclose.ErrUnavailable) && errors.Is(err, lost),
				"%d tries, %v; want one and ErrUnavailable with %v", tries, err, lost)
		})
	}
}

func TestBackoff_GrowsAndIsBounded(t *testing.T) {
	for try := 1; try < 40; try++ {
		d := backoff(try)
		expect.That(t, d >= firstWait/2 && d <= lastWait, "wait after try %d is %v", try, d)
	}
}
