// Package shopdb is the shop's side of the reference schema, which orderclose migrate creates:
// it creates, reads, pays, cancels, ships and confirms orders, and keeps their stock. A shop
// in another language writes the same statements. The closer changes the same tables.
//
//	shopdb.go   transactions, which are repeated after a conflict
//	orders.go   creating and reading orders
//	steps.go    paying, cancelling, shipping and confirming orders
//	stock.go    the stock and its ledger
//	faults.go   the meaning of the drivers' errors
//	numbered.go the placeholders of PostgreSQL
//	postgres.go a pool on PostgreSQL for the shop's own statements
//
// Each change of an order compares and sets its status, so that of two changes at the same
// time only one succeeds. Stock is changed last and in SKU order, as the closer does, so that
// transactions hold its rows briefly and wait for each other in one order.
package shopdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/producer"
)

// A transaction that lost a conflict is tried again: at most maxTries attempts in all, the first
// included, and no new attempt after retryFor.
const (
	maxTries  = 10
	retryFor  = 2 * time.Second
	firstWait = 2 * time.Millisecond
	lastWait  = 250 * time.Millisecond
)

// Options configure Orders. DB and Dialect are required.
type Options struct {
	DB      *sql.DB
	Dialect producer.Dialect // producer.MySQL, also for MariaDB, producer.Postgres or producer.SQLite
	// Record records a payment in a transaction of the shop: RecordPayment of a sqlclose.Store. Only Pay needs it.
	Record func(ctx context.Context, tx orderclose.Tx, p sqlclose.Payment) (sqlclose.Recorded, error)
	// Now is the clock of an SQLite database, which has none of its own; default: time.Now.
	Now func() time.Time
}

// Orders are the orders of the shop. The methods are safe for concurrent use.
type Orders struct {
	db  *sql.DB
	sql dialect
	o   Options
}

// New returns Orders. It does not connect.
func New(o Options) *Orders {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Orders{o.DB, dialect{o.Dialect, o.Now}, o}
}

// Tx is a transaction of a checkout: the changes of an order, and the shop's writes to its
// own tables, are committed together or not at all. Errors of its methods do not say whether
// the database is at fault; the error of Orders.Checkout does.
type Tx struct {
	ctx context.Context
	tx  *sql.Tx // nil: a single query
	run runner
	sql dialect
	o   *Options
}

// runner runs statements: *sql.Tx, or *sql.DB for a single query; on PostgreSQL as numbered.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Checkout runs fn in a READ COMMITTED transaction. It runs fn again if the transaction lost
// a conflict with another one, so fn must not keep state between runs. It rolls back if fn
// returns an error. The error is the error of fn, or wraps orderclose.ErrUnavailable or
// orderclose.ErrContended.
func (o *Orders) Checkout(ctx context.Context, fn func(*Tx) error) error {
	began := time.Now()
	for try := 1; ; try++ {
		err := o.once(ctx, fn)
		switch fault := faultOf(err); {
		case err == nil:
			return nil
		case ctx.Err() != nil, fault == faultUnavailable:
			return unavailable(ctx, err)
		case fault != faultConflict:
			return err
		case try == maxTries || time.Since(began) >= retryFor:
			return fmt.Errorf("%w: %w", orderclose.ErrContended, err)
		}
		wait := min(firstWait<<(try-1), lastWait)
		select {
		case <-time.After(wait/2 + rand.N(wait/2)): // so that two transactions do not collide again
		case <-ctx.Done():
			return unavailable(ctx, err)
		}
	}
}

// once runs fn in one transaction.
func (o *Orders) once(ctx context.Context, fn func(*Tx) error) error {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	if err := fn(&Tx{ctx, tx, o.sql.runner(tx), o.sql, &o.o}); err != nil {
		return err
	}
	return tx.Commit()
}

// query runs fn, which makes one query, without a transaction.
func (o *Orders) query(ctx context.Context, fn func(*Tx) error) error {
	err := fn(&Tx{ctx, nil, o.sql.runner(o.db), o.sql, &o.o})
	if faultOf(err) != faultNone {
		return unavailable(ctx, err)
	}
	return err
}

// unavailable returns an error that wraps orderclose.ErrUnavailable, err, and the error of ctx.
func unavailable(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
}

// SQL returns the underlying transaction, for the shop's own tables. The caller must not commit
// it.
func (t *Tx) SQL() *sql.Tx { return t.tx }

// Now returns the database's clock, in UTC and whole milliseconds.
func (t *Tx) Now() (time.Time, error) {
	now, args := t.sql.now()
	var ms int64
	err := t.run.QueryRowContext(t.ctx, "SELECT "+t.sql.millis(now), args...).Scan(&ms)
	return time.UnixMilli(ms).UTC(), err
}

// exec runs a statement and returns the number of rows that it changed.
func (t *Tx) exec(query string, args ...any) (int64, error) {
	res, err := t.run.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// dialect holds what differs between the databases.
type dialect struct {
	name  producer.Dialect
	clock func() time.Time
}

// now returns the database's clock as an expression with its arguments.
func (d dialect) now() (expr string, args []any) {
	if d.name == producer.SQLite {
		return "?", []any{d.clock().UnixMilli()}
	}
	if d.name == producer.Postgres {
		return "statement_timestamp()", nil // now() is the time of the transaction
	}
	return "UTC_TIMESTAMP(3)", nil // never NOW(3), which is in the session's time zone
}

// time returns t as the database stores it, truncated to milliseconds.
func (d dialect) time(t time.Time) any {
	if d.name == producer.SQLite {
		return t.UnixMilli()
	}
	text := t.UTC().Format("2006-01-02 15:04:05.000")
	if d.name == producer.Postgres {
		text += "+00" // whatever the zone of the session is
	}
	return text
}

// millis returns an expression for a stored time in unix milliseconds, which depends on no
// setting of the connection.
func (d dialect) millis(expr string) string {
	if d.name == producer.SQLite {
		return expr
	}
	if d.name == producer.Postgres {
		return "CAST(floor(extract(epoch FROM " + expr + ") * 1000) AS bigint)"
	}
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + expr + ") DIV 1000"
}
