package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderclose/orderclose/internal/store/fault"
)

// Code returns the SQLSTATE of an error of a PostgreSQL server; empty: err is none.
func Code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// faults maps SQLSTATEs to faults, and classes of them, which are their first two characters. The other
// errors are fault.Order: among them 22 (data), 23 (constraints) and P0001 (RAISE in a trigger).
var faults = map[string]fault.Fault{
	"23505": fault.Duplicate, // unique violation

	"40":    fault.Retry, // serialization failure, deadlock
	"55P03": fault.Retry, // lock wait timed out
	"72000": fault.Retry, // snapshot too old

	"40003": fault.Unavailable, // nobody knows whether the statement was executed
	"08":    fault.Unavailable, // connection; also what a pooler says
	"0A":    fault.Unavailable, // not supported, such as a prepared statement whose table has changed
	"25006": fault.Unavailable, // read-only: a standby
	"25P03": fault.Unavailable, // a transaction was idle for too long
	"25P04": fault.Unavailable, // a transaction took too long
	"26":    fault.Unavailable, // a prepared statement is unknown: a pooler changed the connection
	"28":    fault.Unavailable, // user or password refused
	"3D":    fault.Unavailable, // unknown database
	"3F":    fault.Unavailable, // unknown schema
	"42":    fault.Unavailable, // no such table or column, no privilege, a wrong type: the schema does not match the mapping
	"53":    fault.Unavailable, // disk full, out of memory, too many connections
	"55":    fault.Unavailable, // the server is not in the state for it
	"57":    fault.Unavailable, // shutdown, start, or a statement that was cancelled
	"58":    fault.Unavailable, // input or output failed
	"F0":    fault.Unavailable, // configuration file
	"XX":    fault.Unavailable, // internal error, damaged data
}

// Fault returns the cause of an error of the server with a SQLSTATE.
func Fault(code string) fault.Fault {
	if f, ok := faults[code]; ok {
		return f
	}
	return faults[code[:min(2, len(code))]]
}

// IsReadOnly reports whether the server accepts no writes, and may no longer be the primary.
func IsReadOnly(code string) bool { return code == "25006" }

// IsStarting reports whether the server starts, stops, or has too many connections.
func IsStarting(code string) bool {
	return slices.Contains([]string{"57P01", "57P02", "57P03", "53300"}, code)
}

// IsSlow reports whether a statement was ended because it took too long: one order may be the cause.
func IsSlow(code string) bool { return code == "57014" || code == "25P04" }

// IsDenied reports whether the user lacks a privilege.
func IsDenied(code string) bool { return code == "42501" }

// IsConnection reports whether an error of the driver is about the connection, and none of the server.
func IsConnection(err error) bool {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	return connect || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, pgx.ErrTxClosed)
}
