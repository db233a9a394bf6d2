package store

import (
	"context"
	"database/sql/driver"

	"github.com/orderclose/orderclose/internal/store/postgres"
)

// A program's own pool may have no read timeout, which is the driver's default. So each statement of a pooledConn has
// a deadline. After it the driver closes the connection.

// ExecContext implements driver.ExecerContext.
func (c *pooledConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := postgres.Limited(ctx, c.limit)
	defer cancel()
	return c.mysqlConn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c *pooledConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ctx, cancel := postgres.Limited(ctx, c.limit)
	rows, err := c.mysqlConn.QueryContext(ctx, query, args)
	return newLimitedRows(rows, err, cancel)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *pooledConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	limited, cancel := postgres.Limited(ctx, c.limit)
	defer cancel()
	stmt, err := c.mysqlConn.PrepareContext(limited, query)
	if err != nil {
		return nil, err
	}
	return limitedStmt{stmt, c}, nil
}

// Ping implements driver.Pinger.
func (c *pooledConn) Ping(ctx context.Context) error {
	ctx, cancel := postgres.Limited(ctx, c.limit)
	defer cancel()
	return c.mysqlConn.Ping(ctx)
}

// BeginTx implements driver.ConnBeginTx.
func (c *pooledConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	limited, cancel := postgres.Limited(ctx, c.limit)
	defer cancel()
	if _, err := c.mysqlConn.BeginTx(limited, o); err != nil {
		return nil, err
	}
	return limitedTx{context.WithoutCancel(ctx), c}, nil
}

// limitedTx is a transaction of a pooledConn. The driver's own Commit has no context.
type limitedTx struct {
	ctx context.Context
	c   *pooledConn
}

func (t limitedTx) Commit() error   { return t.end("COMMIT") }
func (t limitedTx) Rollback() error { return t.end("ROLLBACK") }

func (t limitedTx) end(statement string) error {
	_, err := t.c.ExecContext(t.ctx, statement, nil)
	return err
}

// limitedStmt is a prepared statement of a pooledConn. The driver prepares each statement with
// arguments unless the program has opened its pool with interpolateParams=true.
type limitedStmt struct {
	driver.Stmt
	c *pooledConn
}

// ExecContext implements driver.StmtExecContext.
func (s limitedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := postgres.Limited(ctx, s.c.limit)
	defer cancel()
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s limitedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx, cancel := postgres.Limited(ctx, s.c.limit)
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return newLimitedRows(rows, err, cancel)
}

// limitedRows are rows whose statement's deadline ends with Close.
type limitedRows struct {
	driver.Rows
	cancel context.CancelFunc
}

func newLimitedRows(rows driver.Rows, err error, cancel context.CancelFunc) (driver.Rows, error) {
	if err != nil {
		cancel()
		return nil, err
	}
	return limitedRows{rows, cancel}, nil
}

// Close implements driver.Rows.
func (r limitedRows) Close() error {
	defer r.cancel()
	// The driver's Close reads the rest without the deadline of the statement.
	for dest := make([]driver.Value, len(r.Columns())); r.Next(dest) == nil; {
	}
	return r.Rows.Close()
}
