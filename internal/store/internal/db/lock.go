package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// lockInterval is how long the connection that has a lock says nothing. After three times as long the server takes its
	// client for lost.
	lockInterval = 5 * time.Second
	// lockAnswer is how long the connection waits for the answer.
	lockAnswer = 2 * lockInterval
)

// lockStatements are the statements of a lock that the server gives to a connection. They run in one transaction, which
// lasts as long as the lock, so that a proxy or pooler passes all of them to one connection of the server. The
// transaction reads no table.
type lockStatements struct {
	Begin string // begins the transaction, which ends soon after its client has disappeared
	// The following have one argument, the name of the lock. Take returns 1 if the connection got the lock, and 0 if
	// another connection has it. Held returns 1 if this connection has the lock, and otherwise 0.
	Take, Held string
	Release    string // gives all locks of the connection back; it has no argument
}

// lock is Dialect.SessionLock.
func (q *lockStatements) lock(ctx context.Context, db *sql.DB, name string) (held context.Context, release func(context.Context), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	l := &lockConn{q, conn, name}
	taken, err := l.take(ctx)
	if !taken || err != nil {
		l.discard()
		return nil, nil, err
	}
	held, lost := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { l.keep(held, lost) })
	return held, func(ctx context.Context) {
		lost(nil)
		keeping.Wait()
		_, _ = conn.ExecContext(ctx, q.Release)
		l.discard()
	}, nil
}

// keep asks every lockInterval for the lock, until held ends. If the connection does not have it any more, keep ends held.
func (l *lockConn) keep(held context.Context, lost context.CancelCauseFunc) {
	for retry.Sleep(held, lockInterval) {
		ctx, cancel := context.WithTimeout(held, lockAnswer)
		err := l.check(ctx)
		cancel()
		if err != nil && held.Err() == nil {
			lost(fmt.Errorf("the lock %s is lost, and another process may take it: %w", l.name, err))
		}
	}
}

// lockConn is a connection that has a lock, or asks for it.
type lockConn struct {
	q    *lockStatements
	conn *sql.Conn
	name string
}

// take takes the lock. It returns false if another connection has it.
func (l *lockConn) take(ctx context.Context) (bool, error) {
	if _, err := l.conn.ExecContext(ctx, l.q.Begin); err != nil {
		return false, err
	}
	taken, err := l.ask(ctx, l.q.Take)
	if err == nil && taken {
		err = l.check(ctx)
	}
	return taken, err
}

// check returns an error unless the connection has the lock.
func (l *lockConn) check(ctx context.Context) error {
	has, err := l.ask(ctx, l.q.Held)
	if err == nil && !has {
		err = fmt.Errorf("this connection took the lock %s, and does not have it. Does a proxy share connections, or does the server ignore locks?", l.name)
	}
	return err
}

// ask reports whether a statement returns 1.
func (l *lockConn) ask(ctx context.Context, query string) (bool, error) {
	var n int
	err := l.conn.QueryRowContext(ctx, query, l.name).Scan(&n)
	return n == 1, err
}

// discard closes the connection, with what is left of the transaction and the lock.
func (l *lockConn) discard() {
	_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = l.conn.Close()
}
