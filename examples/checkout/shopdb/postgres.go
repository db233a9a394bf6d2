package shopdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// OpenPostgres returns a pool for the shop's own statements, which are written once for all databases: its
// connections take ? for arguments, INSERT IGNORE and LOCK IN SHARE MODE. A shop on PostgreSQL alone writes
// $1, ON CONFLICT DO NOTHING and FOR SHARE, and needs no such pool.
func OpenPostgres(c pgx.ConnConfig) *sql.DB { return sql.OpenDB(portable{stdlib.GetConnector(c)}) }

type portable struct{ driver.Connector }

// Connect implements driver.Connector.
func (p portable) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return portableConn{c.(*stdlib.Conn)}, nil
}

type portableConn struct{ *stdlib.Conn }

// ExecContext implements driver.ExecerContext.
func (c portableConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.ExecContext(ctx, forPostgres(query), args)
}

// QueryContext implements driver.QueryerContext.
func (c portableConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.QueryContext(ctx, forPostgres(query), args)
}

func forPostgres(query string) string {
	query = strings.Replace(query, "LOCK IN SHARE MODE", "FOR SHARE", 1)
	if insert, ok := strings.CutPrefix(query, "INSERT IGNORE "); ok {
		query = "INSERT " + insert + " ON CONFLICT DO NOTHING"
	}
	return number(query)
}
