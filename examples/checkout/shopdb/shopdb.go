// Package shopdb is the shop's side of the reference schema, which orderclose migrate creates:
// it creates, reads, pays, cancels, ships and confirms orders, and keeps their stock. A shop
// in another language writes the same statements. The closer changes the same tables.
//
//	shopdb.go   transactions, which are repeated after a conflict
//	orders.go   creating and reading orders
//	steps.go    paying, cancelling, shipping and confirming orders
//	stock.go    the stock and its ledger
//	faults.go   the meaning of the drivers' errors
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
	"strings"
	"time"

	"github.com/orderclose/orderclose"
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
	Dialect producer.Dialect // producer.MySQL, also for MariaDB, or producer.SQLite
	// Now is the clock of an SQLite database, which has none of its own; default: time.Now.
	Now func() time.Time
}

// Orders are the orders of the shop. The methods are safe for concurrent use.
type Orders struct {
	db  *sql.DB
	sql dialect
}

// New returns Orders. It does not connect.
func New(o Options) *Orders {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Orders{o.DB, dialect{o.Dialect, o.Now}}
}

// CreateTables creates the table of refunds if it is missing: one row for each payment that a customer
// gets back, because it came after the order was closed, cancelled or paid by another payment.
func (o *Orders) CreateTables(ctx context.Context) error {
	id, at := "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "DATETIME(3)"
	if o.sql.name == producer.SQLite {
		id, at = "TEXT", "INTEGER"
	}
	_, err := o.db.ExecContext(ctx, strings.NewReplacer("{id}", id, "{at}", at).Replace(`CREATE TABLE IF NOT EXISTS refund_intents (
  order_id   {id} NOT NULL,
  payment_id {id} NOT NULL,
  reason     VARCHAR(16) NOT NULL, -- closed, cancelled or paid_twice
  created_at {at} NOT NULL,
  PRIMARY KEY (order_id, payment_id)
)`))
	if faultOf(err) != faultNone {
		return unavailable(ctx, err)
	}
	return err
}

// Tx is a transaction of a checkout: the changes of an order, and the shop's writes to its
// own tables, are committed together or not at all. Errors of its methods do not say whether
// the database is at fault; the error of Orders.Checkout does.
type Tx struct {
	ctx context.Context
	run runner
	sql dialect
}

// runner runs statements: *sql.Tx, or *sql.DB for a single query.
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
	if err := fn(&Tx{ctx, tx, o.sql}); err != nil {
		return err
	}
	return tx.Commit()
}

// query runs fn, which makes one query, without a transaction.
func (o *Orders) query(ctx context.Context, fn func(*Tx) error) error {
	err := fn(&Tx{ctx, o.db, o.sql})
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
func (t *Tx) SQL() *sql.Tx { return t.run.(*sql.Tx) }

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
	return "UTC_TIMESTAMP(3)", nil // never NOW(3), which is in the session's time zone
}

// time returns t as the database stores it, truncated to milliseconds.
func (d dialect) time(t time.Time) any {
	if d.name == producer.SQLite {
		return t.UnixMilli()
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

// millis returns an expression for a stored time in unix milliseconds, which depends on no
// setting of the connection.
func (d dialect) millis(expr string) string {
	if d.name == producer.SQLite {
		return expr
	}
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + expr + ") DIV 1000"
}
