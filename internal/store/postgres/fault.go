package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Code returns the SQLSTATE of an error of a PostgreSQL server; empty: err is none.
func Code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// IsConnection reports whether an error of the driver is about the connection, and none of the server.
func IsConnection(err error) bool {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	return connect || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, pgx.ErrTxClosed)
}
