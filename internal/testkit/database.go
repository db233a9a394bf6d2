package testkit

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Wrap puts the faults in front of a driver. The driver's connections must implement the interfaces of database/sql/driver that take contexts.
func (f *Faults) Wrap(c driver.Connector) driver.Connector { return &connector{c, f} }

type connector struct {
	driver.Connector
	faults *Faults
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if fault, ok := c.faults.strike(Connect); ok {
		if err := fault.wait(ctx); err != nil {
			return nil, err
		}
		if fault.Err != nil {
			return nil, fault.Err
		}
	}
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	able, ok := inner.(contextConn)
	if !ok {
		return nil, fmt.Errorf("testkit: %T does not take contexts", inner)
	}
	return &conn{contextConn: able, faults: c.faults}, nil
}

// Close is called by database/sql when the pool is closed.
func (c *connector) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// contextConn is what the connections of the inner driver must implement.
type contextConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// conn is a connection. database/sql uses it from one goroutine at a time.
type conn struct {
	contextConn
	faults  *Faults
	tx      *tx // the open transaction; nil: none
	severed bool
}

// IsValid implements driver.Validator. database/sql removes a severed connection from the pool.
func (c *conn) IsValid() bool { return !c.severed }

// Close implements driver.Conn.
func (c *conn) Close() error {
	if c.severed {
		return nil
	}
	return c.contextConn.Close()
}

// errEnded is the error of a statement in a transaction that the database has rolled back. A
// store that receives it has a bug, because it continued after the rollback.
var errEnded = errors.New("testkit: the database has rolled this transaction back")

// pass is called before each operation. If a fault strikes, it waits and returns its error.
func (c *conn) pass(ctx context.Context, points ...Point) error {
	switch {
	case c.severed:
		return driver.ErrBadConn
	case c.tx != nil && c.tx.ended:
		return errEnded
	}
	fault, ok := c.faults.strike(points...)
	if !ok {
		return nil
	}
	if err := fault.wait(ctx); err != nil {
		return err
	}
	c.apply(fault)
	return fault.Err
}

// apply does to the connection what the fault says.
func (c *conn) apply(fault Fault) {
	if (fault.Sever || fault.RollsBack) && c.tx != nil {
		c.tx.end()
	}
	if fault.Sever {
		c.severed = true
		_ = c.contextConn.Close()
	}
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.pass(ctx, Begin); err != nil {
		return nil, err
	}
	inner, err := c.contextConn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	c.tx = &tx{conn: c, inner: inner, ctx: ctx}
	return c.tx, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.pass(ctx, pointsOf(query)...); err != nil {
		return nil, err
	}
	return c.contextConn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.pass(ctx, pointsOf(query)...); err != nil {
		return nil, err
	}
	return c.contextConn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext. Faults strike here, and not when the prepared statement is executed.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.pass(ctx, pointsOf(query)...); err != nil {
		return nil, err
	}
	return c.contextConn.PrepareContext(ctx, query)
}

// pointsOf returns the points that a statement passes.
func pointsOf(query string) []Point {
	if strings.HasPrefix(strings.ToUpper(strings.TrimSpace(query)), "SELECT") {
		return []Point{Statement}
	}
	return []Point{Statement, Write}
}

// tx is a transaction.
type tx struct {
	conn  *conn
	inner driver.Tx
	ctx   context.Context // the context of BeginTx; Commit has none
	ended bool            // committed with a lost answer, or rolled back by the database
}

// end rolls the transaction back, as the database does itself.
func (t *tx) end() {
	if !t.ended {
		t.ended = true
		_ = t.inner.Rollback()
	}
}

// Commit implements driver.Tx.
func (t *tx) Commit() error {
	c := t.conn
	defer func() { c.tx = nil }()
	switch {
	case c.severed:
		return driver.ErrBadConn
	case t.ended:
		return errEnded
	}
	fault, ok := c.faults.strike(Commit)
	if !ok {
		return t.inner.Commit()
	}
	if err := fault.wait(t.ctx); err != nil {
		t.end()
		return err
	}
	if fault.Err == nil {
		return t.inner.Commit()
	}
	if fault.Done {
		if err := t.inner.Commit(); err != nil {
			return err
		}
		t.ended = true
	}
	t.end()
	c.apply(fault)
	return fault.Err
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	t.conn.tx = nil
	if t.ended {
		return nil
	}
	return t.inner.Rollback()
}

// wait waits for the delay of the fault, or until ctx ends.
func (f Fault) wait(ctx context.Context) error {
	if f.Delay <= 0 {
		return nil
	}
	timer := time.NewTimer(f.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
