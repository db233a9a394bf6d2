package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestServerFault_NamesTheCause(t *testing.T) {
	number := func(n uint16) error { return fmt.Errorf("lock: %w", &mysql.MySQLError{Number: n}) }
	for _, c := range []struct {
		err  error
		want Fault
	}{
		{number(1213), FaultRetry},
		{number(1205), FaultRetry},
		{number(1020), FaultRetry},
		{number(1062), FaultDuplicate},
		{number(1290), FaultUnavailable},
		{number(1792), FaultUnavailable},
		{number(1836), FaultUnavailable},
		{number(1021), FaultUnavailable},
		{number(3675), FaultUnavailable},
		{number(1040), FaultUnavailable},
		{number(1203), FaultUnavailable},
		{number(1053), FaultUnavailable},
		{number(1049), FaultUnavailable},
		{number(1146), FaultUnavailable},
		{number(1406), FaultOrder}, // data too long
		{number(1264), FaultOrder}, // out of range
		{number(4025), FaultOrder}, // CHECK, MariaDB
		{number(3819), FaultOrder}, // CHECK, MySQL
		{number(1644), FaultOrder}, // SIGNAL of a trigger
		{driver.ErrBadConn, FaultUnavailable},
		{fmt.Errorf("commit: %w", mysql.ErrInvalidConn), FaultUnavailable},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, FaultUnavailable},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, FaultUnavailable},
		{context.DeadlineExceeded, FaultUnavailable},
		{errors.New("anything else"), FaultOrder},
		{&rowsError{Want: 2, Got: 1}, FaultOrder},
	} {
		expect.Equal(t, ServerFault(c.err), c.want, "%v (%T): fault", c.err, c.err)
	}
}

func TestServerFault_NamesTheCauseOfASQLSTATE(t *testing.T) {
	for code, want := range map[string]Fault{
		"23505": FaultDuplicate,
		"40001": FaultRetry, "40P01": FaultRetry, "55P03": FaultRetry,
		"40003": FaultUnavailable, "08006": FaultUnavailable, "25006": FaultUnavailable, "28P01": FaultUnavailable, "3D000": FaultUnavailable,
		"42501": FaultUnavailable, "42P01": FaultUnavailable, "42703": FaultUnavailable, "42804": FaultUnavailable,
		"53100": FaultUnavailable, "53300": FaultUnavailable, "57014": FaultUnavailable, "57P01": FaultUnavailable, "58030": FaultUnavailable,
		"XX001": FaultUnavailable,
		"22001": FaultOrder, "22003": FaultOrder, "22P02": FaultOrder, "23502": FaultOrder, "23514": FaultOrder, "25P02": FaultOrder, "P0001": FaultOrder,
	} {
		got := ServerFault(&pgconn.PgError{Code: code})
		expect.That(t, got == want, "%s: %v, want %v", code, got, want)
	}
}

func TestUnavailable_AddsTheContextsErrorOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Unavailable(ctx, Unavailable(ctx, driver.ErrBadConn))
	for _, target := range []error{orderclose.ErrUnavailable, context.Canceled, driver.ErrBadConn} {
		expect.That(t, errors.Is(err, target), "%v is not %v", err, target)
	}
	want := "the store is unavailable: context canceled: driver: bad connection"
	expect.That(t, err.Error() == want, "error %q, want %q", err, want)
}

func TestUnavailable_SaysWhatCreatesAMissingTable(t *testing.T) {
	for _, missing := range []error{&mysql.MySQLError{Number: 1146}, &mysql.MySQLError{Number: 1054}, &pgconn.PgError{Code: "42P01"},
		&pgconn.PgError{Code: "42703"}} {
		err := Unavailable(t.Context(), missing)
		expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && errors.Is(err, missing) && strings.Contains(err.Error(), "orderclose migrate"),
			"error %v", err)
	}
}
