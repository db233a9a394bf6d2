package shopdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderclose/orderclose"
)

// fault is the cause of an error.
type fault int

const (
	// faultNone: the error is not the database's, or a request caused it.
	faultNone fault = iota
	// faultDuplicate: a unique key exists already.
	faultDuplicate
	// faultConflict: the transaction lost a conflict with another one. A retry is likely to
	// succeed.
	faultConflict
	// faultUnavailable: the database is not reachable, or rejects every request.
	faultUnavailable
)

// The codes of PostgreSQL.
const (
	postgresDuplicate     = "23505"
	postgresSerialization = "40001"
	postgresDeadlock      = "40P01"
	postgresLockWait      = "55P03"
	postgresData          = "22" // a value that its column does not take
)

// Error numbers of MySQL and MariaDB, and the codes of SQLite.
const (
	mysqlDuplicate    = 1062
	mysqlChanged      = 1020 // MariaDB: the record has changed since it was read
	mysqlLockWait     = 1205
	mysqlDeadlock     = 1213
	mysqlTooLong      = 1406 // a value is longer than its column
	mysqlBadText      = 1366
	mysqlOutOfRange   = 1264
	sqliteBusy        = 5
	sqliteLocked      = 6
	sqliteUniqueKey   = 2067
	sqlitePrimary     = 1555
	sqlitePrimaryMask = 0xff // the lowest byte of an extended code is the primary code
)

// faultOf returns the cause of an error. A request can cause only the few server errors that
// are listed here. Every other error of a server or of its connection is a fault of the
// database. An error of the shop itself has no fault.
func faultOf(err error) fault {
	var fromMySQL *mysql.MySQLError
	var fromPostgres *pgconn.PgError
	var fromSQLite interface{ Code() int }
	var network net.Error
	switch {
	case err == nil:
		return faultNone
	case errors.As(err, &fromMySQL):
		switch fromMySQL.Number {
		case mysqlDuplicate:
			return faultDuplicate
		case mysqlChanged, mysqlLockWait, mysqlDeadlock:
			return faultConflict
		case mysqlTooLong, mysqlBadText, mysqlOutOfRange: // a request caused it
			return faultNone
		}
		return faultUnavailable
	case errors.As(err, &fromPostgres):
		switch code := fromPostgres.Code; {
		case code == postgresDuplicate:
			return faultDuplicate
		case code == postgresSerialization, code == postgresDeadlock, code == postgresLockWait:
			return faultConflict
		case strings.HasPrefix(code, postgresData): // a request caused it
			return faultNone
		}
		return faultUnavailable
	case errors.As(err, &fromSQLite):
		switch code := fromSQLite.Code(); {
		case code == sqliteUniqueKey, code == sqlitePrimary:
			return faultDuplicate
		case code&sqlitePrimaryMask == sqliteBusy, code&sqlitePrimaryMask == sqliteLocked:
			return faultConflict
		}
		return faultUnavailable
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network),
		errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, pgx.ErrTxClosed), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), pgconn.SafeToRetry(err),
		errors.Is(err, orderclose.ErrUnavailable):
		return faultUnavailable
	}
	return faultNone
}
