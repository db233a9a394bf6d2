package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// Fault is the cause of an error, which decides what may be done about it. Each kind of database maps the errors of
// its driver to them.
type Fault int

const (
	// FaultOrder is a failure that the data of an order may have caused: the others may
	// succeed without the order.
	FaultOrder Fault = iota
	// FaultDuplicate is a unique key that exists already.
	FaultDuplicate
	// FaultRetry is a transaction that lost a conflict with another transaction: a retry
	// is likely to succeed.
	FaultRetry
	// FaultUnavailable is a failure of the database: not reachable, read-only, full,
	// overloaded, or without the tables or privileges that are needed.
	FaultUnavailable
)

// serverErrors has the codes of the errors of a server: numbers of MySQL and MariaDB, SQLSTATEs of PostgreSQL, and
// classes of SQLSTATEs, which are their first two characters. All other errors are FaultOrder: among them 22 (data),
// 23 (constraints) and P0001 (RAISE in a trigger).
var serverErrors = []struct {
	fault Fault
	codes string
}{
	{FaultDuplicate, "1062 23505"},
	{FaultRetry, "1205 1213 3572 55P03 40"}, // lock wait timed out, deadlock, NOWAIT, serialization failure
	{FaultRetry, "1020 1412 3101 72000"},    // a row or a table has changed since it was read; group replication rolled it back

	{FaultUnavailable, "1158 1159 1160 1161 1152 1184 4031 08"},      // the network, the connection; also what a pooler says
	{FaultUnavailable, "1927 3169 25P03 25P04"},                      // the session was killed, or was idle or busy for too long
	{FaultUnavailable, "1317 1969 3024"},                             // a statement was interrupted, or took too long
	{FaultUnavailable, "1047 1053 1077 1079 3032 57"},                // starts, stops, is offline; a node of Galera is not ready
	{FaultUnavailable, "1036 1290 1792 1836 1874 25006"},             // read-only: a standby, a table, a transaction
	{FaultUnavailable, "1021 1026 1030 1114 3675 58"},                // disk full, or reading and writing failed
	{FaultUnavailable, "1037 1038 1041 1135 53"},                     // out of memory or of threads; 53 also has a full disk
	{FaultUnavailable, "1040 1129 1130 1203 1226"},                   // too many connections, host blocked, a limit of the user
	{FaultUnavailable, "1044 1045 1142 1143 1227 1698 1820 1862 28"}, // user or password refused, privilege missing
	{FaultUnavailable, "1049 1054 1146 1176 1356 1449 3D 3F 42"},     // the schema does not match the mapping
	{FaultUnavailable, "1194 1195 1932 XX"},                          // a table is damaged, or missing in the engine
	{FaultUnavailable, "1180 40003"},                                 // error during COMMIT; nobody knows whether it was done
	{FaultUnavailable, "1665"},                                       // the binary log cannot take the write: see binlogCodes
	{FaultUnavailable, "0A 26"},                                      // a prepared statement is unknown, or its table has changed
	{FaultUnavailable, "55 F0"},                                      // the server is not in the state for it, or badly configured
}

// serverFaults has serverErrors by code.
var serverFaults = sync.OnceValue(func() map[string]Fault {
	all := map[string]Fault{}
	for _, e := range serverErrors {
		for code := range strings.FieldsSeq(e.codes) {
			all[code] = e.fault
		}
	}
	return all
})

// The codes of some errors, for hasCode.
const (
	readOnlyCodes = "1036 1290 1792 1836 1874 3032 25006"                   // the server may no longer be the primary
	startCodes    = "1040 1047 1053 1077 1079 3032 57P01 57P02 57P03 53300" // starts, stops, has too many connections
	SlowCodes     = "1317 1969 3024 57014 25P04"                            // a time limit: one order may be the cause
	charsetCodes  = "1267 1270 1271"                                        // the charset of a column does not have a text
	ThereCodes    = "1060 1061 1091"                                        // the column or index to add is there, or the one to drop is gone
	LockedCodes   = "1205 3572 55P03"                                       // another transaction locks a row
	deniedCodes   = "1142 1143 42501"                                       // a privilege is missing
	missingCodes  = "1054 1146 42703 42P01"                                 // a column or a table is missing
	BinlogCodes   = "1665"                                                  // binlog_format is STATEMENT, which takes no write of READ COMMITTED
)

// raisableCodes are codes and classes of FaultUnavailable that a trigger may raise for one order: a privilege, a table, a column or a
// routine is missing, the server is not in the state for it, a statement is not possible, or was cancelled.
const raisableCodes = "1044 1054 1142 1143 1146 1227 1356 1449 0A 28 42 55 57014 53100 53200 53400 XX"

// Raisable reports whether a trigger may have raised an error of a server for one order.
func Raisable(err error) bool {
	code := ErrorCode(err)
	return HasCode(err, raisableCodes) || len(code) == 5 && slices.Contains(strings.Fields(raisableCodes), code[:2])
}

// ErrorCode returns the code of an error of a server; empty: err is none.
func ErrorCode(err error) string {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return strconv.Itoa(int(my.Number))
	}
	return postgres.Code(err)
}

// HasCode reports whether err is an error of a server with one of the codes.
func HasCode(err error, codes string) bool {
	return slices.Contains(strings.Fields(codes), ErrorCode(err))
}

// OrNoRow returns nil for the error that the charset of a column does not have a text: no row has such a text.
func OrNoRow(err error) error {
	if HasCode(err, charsetCodes) {
		return nil
	}
	return err
}

// Searched searches rows by ids. The server refuses the whole list if the charset of the column does not have one of the ids. Then
// searched calls search with each half of the list.
func Searched(ids []string, search func(ids []string) error) error {
	err := search(ids)
	if len(ids) == 1 {
		return OrNoRow(err)
	}
	if !HasCode(err, charsetCodes) {
		return err
	}
	if err := Searched(ids[:len(ids)/2], search); err != nil {
		return err
	}
	return Searched(ids[len(ids)/2:], search)
}

// Denied reports whether err says that the user may not read a table. MySQL returns it also for
// a table that does not exist, to a user without privileges on the database.
func Denied(err error) bool { return HasCode(err, deniedCodes) }

// Passes reports whether an error of Ping may end by itself, as while the server starts. A refused user
// and an unknown database do not.
func Passes(err error) bool {
	return err != nil && (ErrorCode(err) == "" || HasCode(err, startCodes)) &&
		!errors.Is(err, postgres.ErrZone) && !errors.Is(err, postgres.ErrServer) && !errors.Is(err, context.Canceled)
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
	code := ErrorCode(err)
	if code == "" {
		return ConnectionFault(err)
	}
	if f, ok := serverFaults()[code]; ok || len(code) < 5 {
		return f
	}
	return serverFaults()[code[:2]]
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
	network, ok := errors.AsType[net.Error](err)
	if ErrorCode(err) != "" && !HasCode(err, SlowCodes) || ok && !network.Timeout() {
		return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, err)
	}
	return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err) // a time limit; the driver hides some of them
}

// Fault returns the cause of the error with which a transaction under ctx ended.
func (s *Handle) Fault(ctx context.Context, err error) Fault {
	if ctx.Err() != nil || errors.Is(err, orderclose.ErrUnavailable) {
		return FaultUnavailable // no order caused an error of a cancelled transaction
	}
	return s.Dialect.Fault(err)
}

// DropIdle closes the idle connections: a demoted primary keeps its connections, and new
// connections reach the new primary.
func (s *Handle) DropIdle() {
	if s.MaxIdle > 0 {
		pool := s.DB()
		pool.SetMaxIdleConns(0)
		pool.SetMaxIdleConns(s.MaxIdle)
	}
}

// Explain wraps err with orderclose.ErrUnavailable unless an order may have caused it. After
// a read-only error it drops the idle connections, and after one that a table may have caused it doubts the tables of months.
func (s *Handle) Explain(ctx context.Context, err error) error {
	if HasCode(err, readOnlyCodes) {
		s.DropIdle()
	}
	fault := s.Fault(ctx, err)
	if s.Q != nil && ctx.Err() == nil && !HasCode(err, SlowCodes) && (fault == FaultUnavailable || !s.Dialect.TellsTables) {
		s.Q.Tables.doubt()
	}
	switch fault {
	case FaultRetry, FaultUnavailable:
		return Unavailable(ctx, err)
	default:
		return err
	}
}

// FailedTo explains err, and says what failed. It returns nil if err is nil.
func (s *Handle) FailedTo(ctx context.Context, err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return Wrap(s.Explain(ctx, err), what, args...)
}

// Wrap returns err with what failed before it; nil if err is nil.
func Wrap(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
}

// Unavailable wraps err with orderclose.ErrUnavailable. If ctx ended, it adds the error of
// ctx, since the driver may have returned another error. To an error about a missing privilege, table or column,
// it adds what to do.
func Unavailable(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", end, err)
	}
	if errors.Is(err, orderclose.ErrUnavailable) {
		return err
	}
	if Denied(err) && strings.Contains(err.Error(), "row-level security") {
		return fmt.Errorf("%w: %w; %s", orderclose.ErrUnavailable, err, mapping.OrAccept(ShowRows, mapping.RowSecurity))
	}
	if Denied(err) {
		return fmt.Errorf("%w: %w; grant it to the database's user: docs/security.md lists what each part needs", orderclose.ErrUnavailable, err)
	}
	if HasCode(err, missingCodes) {
		return fmt.Errorf("%w: %w; orderclose migrate (in Go, CreateTables) creates the tables of orderclose, and topics.yaml names those of the shop; "+
			"on PostgreSQL the search_path of the user or of the DSN names the schema of both",
			orderclose.ErrUnavailable, err)
	}
	if HasCode(err, BinlogCodes) {
		return fmt.Errorf("%w: binlog_format of the server is STATEMENT, and no close can be written: set it to ROW or MIXED in the server's configuration and with "+
			"SET GLOBAL binlog_format = 'ROW', and start orderclose again, since open sessions keep the old value: %w", orderclose.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
}

// ErrLocked says that the wait for a table lock timed out.
var ErrLocked = errors.New("another session holds the lock of a table: FLUSH TABLES WITH READ LOCK, LOCK TABLES, " +
	"or a long ALTER TABLE or transaction; SHOW PROCESSLIST, or in PostgreSQL pg_stat_activity, shows it")
