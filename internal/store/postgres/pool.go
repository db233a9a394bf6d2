package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// IsPool reports whether a program's own pool is one of pgx: sql.Open("pgx", …), stdlib.OpenDB or
// stdlib.OpenDBFromPool.
func IsPool(pool *sql.DB) bool {
	_, ok := pool.Driver().(*stdlib.Driver)
	return ok
}

// PoolConnector returns a connector that connects by taking connections out of a program's own pool, each
// within limit. Each is checked and set up once, used by the store alone, and closed in the end: its session has
// other settings than the program expects. Each statement ends after limit.
func PoolConnector(pool *sql.DB, limit time.Duration) driver.Connector {
	return poolConnector{pool, limit, &leftCommits{}}
}

type poolConnector struct {
	pool  *sql.DB
	limit time.Duration
	left  *leftCommits
}

// Driver implements driver.Connector.
func (c poolConnector) Driver() driver.Driver { return c.pool.Driver() }

// Connect implements driver.Connector.
func (c poolConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.left.err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	taken, err := c.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	p := pooledConn{taken: taken}
	err = taken.Raw(func(of any) error {
		std, ok := of.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("%w: its driver %T is not that of pgx", ErrPool, of)
		}
		if c.pool.Stats().MaxOpenConnections == 0 && ofPgxpool(std) {
			return fmt.Errorf("%w: its connections are those of a pgxpool.Pool, and it may take all: call SetMaxOpenConns with less than pool_max_conns", ErrPool)
		}
		p.conn = &conn{Conn: std, limit: c.limit, lockWait: lockTimeout, left: c.left}
		const settings = "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET client_encoding = 'UTF8'; SET standard_conforming_strings = on"
		if _, err := p.ExecContext(ctx, settings, nil); err != nil {
			return fmt.Errorf("set up a session: %w", err)
		}
		return check(ctx, std.Conn().PgConn())
	})
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// ofPgxpool reports whether a connection is one of a pgxpool.Pool. pgx exports no way to ask: it keeps no configuration of
// such a connection.
func ofPgxpool(c *stdlib.Conn) bool {
	cfg := reflect.ValueOf(c).Elem().FieldByName("connConfig")
	return cfg.IsValid() && cfg.IsZero()
}

// pooledConn is a connection that was taken out of a pool.
type pooledConn struct {
	*conn
	taken *sql.Conn
}

// Close closes the connection. The pool does not get it back, and neither does a pgxpool.Pool below it.
func (p pooledConn) Close() error {
	if p.conn == nil { // it is not of pgx
		return p.giveUp()
	}
	return p.close(p.giveUp)
}

func (p pooledConn) giveUp() error {
	_ = p.taken.Raw(func(of any) error {
		if std, ok := of.(*stdlib.Conn); ok {
			ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
			defer cancel()
			_ = std.Conn().Close(ctx)
		}
		return driver.ErrBadConn
	})
	if err := p.taken.Close(); !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}
