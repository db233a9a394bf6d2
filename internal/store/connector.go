package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// openPool returns a pool that checks each new connection for UTC. It does not connect.
func openPool(cfg *mysql.Config) (*sql.DB, error) {
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, dsnError(err)
	}
	return sql.OpenDB(utcConnector{c}), nil
}

// utcConnector checks the session's time zone on each new connection: in a session that is
// not in UTC, an order may look due hours early. Every error until the connection is ready
// wraps orderclose.ErrUnavailable, since no order caused it: the driver's errors here, such as
// a plain "bad connection", cannot all be recognized.
type utcConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c utcConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	if err := checkConnZone(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, unavailable(ctx, err)
	}
	return conn, nil
}

func checkConnZone(ctx context.Context, conn driver.Conn) error {
	v, err := queryValue(ctx, conn, zoneQuery)
	if err != nil {
		return fmt.Errorf("read the session's time zone: %w", err)
	}
	off, ok := v.(int64)
	if !ok {
		return fmt.Errorf("read the session's time zone: the answer is %v", v)
	}
	return zoneError(off)
}

// queryValue returns the only value of a query, as the driver reads it.
func queryValue(ctx context.Context, conn driver.Conn, query string) (driver.Value, error) {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, fmt.Errorf("%T cannot query", conn)
	}
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	dest := make([]driver.Value, 1)
	if err := rows.Next(dest); err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	return dest[0], nil
}
