package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/fault"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// Fault is the cause of an error, which decides what may be done about it.
type Fault = fault.Fault

// The causes; see package fault.
const (
	FaultOrder       = fault.Order
	FaultDuplicate   = fault.Duplicate
	FaultRetry       = fault.Retry
	FaultUnavailable = fault.Unavailable
)

// mysqlFaults maps error numbers of MySQL and MariaDB to faults. The other errors are FaultOrder.
var mysqlFaults = map[uint16]Fault{
	1062: FaultDuplicate, // duplicate entry

	1020: FaultRetry, // MariaDB: record has changed since it was read
	1205: FaultRetry, // lock wait timed out
	1213: FaultRetry, // deadlock
	1412: FaultRetry, // table definition has changed
	3101: FaultRetry, // group replication rolled it back

	1021: FaultUnavailable, // disk full
	1026: FaultUnavailable, // error on write
	1030: FaultUnavailable, // error from the storage engine, disk full among them
	1036: FaultUnavailable, // table is read-only, such as with --innodb-read-only
	1037: FaultUnavailable, // out of memory
	1040: FaultUnavailable, // too many connections
	1041: FaultUnavailable, // out of memory
	1044: FaultUnavailable, // access to the database denied
	1045: FaultUnavailable, // user or password refused
	1047: FaultUnavailable, // Galera: this node is not ready
	1049: FaultUnavailable, // unknown database
	1053: FaultUnavailable, // shutdown in progress
	1054: FaultUnavailable, // unknown column: the schema does not match the mapping
	1077: FaultUnavailable, // normal shutdown
	1079: FaultUnavailable, // shutdown complete
	1114: FaultUnavailable, // table full
	1129: FaultUnavailable, // host blocked after many errors
	1130: FaultUnavailable, // host not allowed
	1135: FaultUnavailable, // cannot create a thread
	1142: FaultUnavailable, // no privilege on the table
	1143: FaultUnavailable, // no privilege on the column
	1146: FaultUnavailable, // no such table
	1152: FaultUnavailable, // connection aborted
	1158: FaultUnavailable, // network read error
	1159: FaultUnavailable, // network read timed out
	1160: FaultUnavailable, // network write error
	1161: FaultUnavailable, // network write timed out
	1176: FaultUnavailable, // no such index: it was dropped or renamed
	1180: FaultUnavailable, // error during COMMIT
	1184: FaultUnavailable, // connection aborted
	1194: FaultUnavailable, // table crashed
	1195: FaultUnavailable, // table crashed, repair failed
	1203: FaultUnavailable, // the user has too many connections
	1226: FaultUnavailable, // the user exceeded a resource limit
	1227: FaultUnavailable, // access denied, privilege missing
	1290: FaultUnavailable, // --read-only
	1317: FaultUnavailable, // query interrupted
	1356: FaultUnavailable, // a view whose tables or privileges were removed
	1449: FaultUnavailable, // a view or trigger whose definer was removed
	1698: FaultUnavailable, // user refused
	1792: FaultUnavailable, // read-only transaction
	1820: FaultUnavailable, // password expired
	1836: FaultUnavailable, // read-only mode
	1874: FaultUnavailable, // InnoDB is in read-only mode
	1862: FaultUnavailable, // password expired
	1927: FaultUnavailable, // MariaDB: connection killed
	1932: FaultUnavailable, // MariaDB: table is missing in the engine
	1969: FaultUnavailable, // MariaDB: statement took longer than allowed
	3024: FaultUnavailable, // statement took longer than allowed
	3032: FaultUnavailable, // the server is in offline mode
	3169: FaultUnavailable, // session killed
	3675: FaultUnavailable, // tablespace cannot be created or extended, disk full
	4031: FaultUnavailable, // disconnected for inactivity
}

// readOnlyFaults say that the server accepts no writes, and may no longer be the primary.
var readOnlyFaults = []uint16{1036, 1290, 1792, 1836, 1874, 3032}

// startFaults are the errors of a server that starts, stops, or has too many connections.
var startFaults = []uint16{1040, 1047, 1053, 1077, 1079, 3032}

// number returns the number of an error of a MySQL server; 0: err is none.
func number(err error) uint16 {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return my.Number
	}
	return 0
}

// Passes reports whether an error of Ping may end by itself, as while the server starts. A refused user
// and an unknown database do not.
func Passes(err error) bool {
	n, code := number(err), postgres.Code(err)
	return err != nil && (n == 0 && code == "" || slices.Contains(startFaults, n) || postgres.IsStarting(code)) &&
		!errors.Is(err, ErrZone) && !errors.Is(err, ErrServer) && !errors.Is(err, context.Canceled)
}

// connectionErrors are the errors of the drivers and of database/sql about the connection. If
// COMMIT returns such an error, the commit may have been done: the next transaction reads the rows
// under their locks and finds the result.
var connectionErrors = []error{
	driver.ErrBadConn, mysql.ErrInvalidConn, sql.ErrConnDone,
	mysql.ErrMalformPkt, mysql.ErrPktSync, mysql.ErrPktSyncMul, mysql.ErrBusyBuffer,
	mysql.ErrNoTLS, mysql.ErrCleartextPassword, mysql.ErrNativePassword,
	mysql.ErrOldPassword, mysql.ErrUnknownPlugin, mysql.ErrOldProtocol,
	io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	context.DeadlineExceeded,
}

// ServerFault returns the cause of an error of go-sql-driver or pgx.
func ServerFault(err error) Fault {
	if n := number(err); n != 0 {
		return mysqlFaults[n]
	}
	if code := postgres.Code(err); code != "" {
		return postgres.Fault(code)
	}
	return ConnectionFault(err)
}

// ConnectionFault returns FaultUnavailable for an error about the connection, else FaultOrder.
// Drivers of other databases use it too.
func ConnectionFault(err error) Fault {
	if _, ok := errors.AsType[net.Error](err); ok || postgres.IsConnection(err) {
		return FaultUnavailable
	}
	for _, e := range connectionErrors {
		if errors.Is(err, e) {
			return FaultUnavailable
		}
	}
	return FaultOrder
}

// slowFaults say that a statement was ended because it took too long: one order may be the cause.
var slowFaults = []uint16{1317, 1969, 3024}

// Classify wraps an error of go-sql-driver, pgx or database/sql with the error that says what to do after
// it: see sqlclose.Classify.
func Classify(err error) error {
	if err == nil || errors.Is(err, orderclose.ErrUnavailable) || errors.Is(err, orderclose.ErrContended) {
		return err
	}
	switch fault := ServerFault(err); {
	case fault == FaultRetry:
		return fmt.Errorf("%w: %w", orderclose.ErrContended, err)
	case fault != FaultUnavailable && !errors.Is(err, context.Canceled):
		return err
	}
	n, code := number(err), postgres.Code(err)
	network, ok := errors.AsType[net.Error](err)
	if n != 0 && !slices.Contains(slowFaults, n) || code != "" && !postgres.IsSlow(code) || ok && !network.Timeout() {
		return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, err)
	}
	return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err) // a time limit; the driver hides some of them
}

// fault returns the cause of the error with which a transaction under ctx ended.
func (s *Store) fault(ctx context.Context, err error) Fault {
	if ctx.Err() != nil || errors.Is(err, orderclose.ErrUnavailable) {
		return FaultUnavailable // no order caused an error of a cancelled transaction
	}
	if _, ok := errors.AsType[*spellingError](err); ok {
		return FaultRetry
	}
	return s.dialect.Fault(err)
}

// explain wraps err with orderclose.ErrUnavailable unless an order may have caused it. After
// a read-only error it closes the idle connections: a demoted primary keeps its connections,
// and new connections reach the new primary.
func (s *Store) explain(ctx context.Context, err error) error {
	if s.maxIdle > 0 && (slices.Contains(readOnlyFaults, number(err)) || postgres.IsReadOnly(postgres.Code(err))) {
		pool := s.DB()
		pool.SetMaxIdleConns(0)
		pool.SetMaxIdleConns(s.maxIdle)
	}
	switch s.fault(ctx, err) {
	case FaultRetry, FaultUnavailable:
		return unavailable(ctx, err)
	default:
		return err
	}
}

// failed explains err, and says what failed. It returns nil if err is nil.
func (s *Store) failed(ctx context.Context, err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return wrap(s.explain(ctx, err), what, args...)
}

// wrap returns err with what failed before it; nil if err is nil.
func wrap(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
}

// unavailable wraps err with orderclose.ErrUnavailable. If ctx ended, it adds the error of
// ctx, since the driver may have returned another error. To an error about a missing privilege, it
// adds what to do.
func unavailable(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", end, err)
	}
	if errors.Is(err, orderclose.ErrUnavailable) {
		return err
	}
	if denied(err) {
		return fmt.Errorf("%w: %w; grant it to the database's user: docs/security.md lists what each part needs", orderclose.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
}
