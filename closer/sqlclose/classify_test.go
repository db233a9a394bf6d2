package sqlclose_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A shop whose orders a sweeper closes has no buckets in its topics.yaml.
func TestNew_TakesAFileWithoutBuckets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte("delays: {default: 15m}\n"), 0o600))
	s := must.Get(sqlclose.New(sqlclose.Options{DSN: "user:password@tcp(127.0.0.1:1)/shop", TopicsFile: file}))(t)
	must.That(t, s.MaxBatch() == 0 && s.Close() == nil, "a call of a quiet shop takes %d orders", s.MaxBatch())
}

func TestClassify_SortsErrorsOfTheDriver(t *testing.T) {
	number := func(n uint16) error { return fmt.Errorf("lock: %w", &mysql.MySQLError{Number: n}) }
	state := func(code string) error { return fmt.Errorf("lock: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err                          error
		contended, unavailable, down bool
	}{
		{err: number(1213), contended: true},
		{err: number(1205), contended: true},
		{err: number(1062)}, // duplicate key
		{err: number(1406)}, // data too long
		{err: errors.New("anything else")},
		{err: number(1290), unavailable: true, down: true}, // read-only
		{err: number(1146), unavailable: true, down: true}, // no such table
		{err: number(1317), unavailable: true},             // interrupted
		{err: state("40P01"), contended: true},
		{err: state("55P03"), contended: true},               // lock wait
		{err: state("23505")},                                // duplicate key
		{err: state("22001")},                                // data too long
		{err: state("25006"), unavailable: true, down: true}, // read-only
		{err: state("42P01"), unavailable: true, down: true}, // no such table
		{err: state("57014"), unavailable: true},             // cancelled
		{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, unavailable: true, down: true},
		{err: mysql.ErrInvalidConn, unavailable: true}, // also after the driver's read timeout
		{err: driver.ErrBadConn, unavailable: true},
		{err: context.DeadlineExceeded, unavailable: true},
		{err: context.Canceled, unavailable: true},
		{err: fmt.Errorf("again: %w", orderclose.ErrContended), contended: true},
	} {
		got := sqlclose.Classify(c.err)
		if !errors.Is(got, c.err) || errors.Is(got, orderclose.ErrContended) != c.contended ||
			errors.Is(got, orderclose.ErrUnavailable) != c.unavailable || errors.Is(got, orderclose.ErrNoOrderAtFault) != c.down {
			t.Errorf("%v became %v", c.err, got)
		}
	}
	if err := sqlclose.Classify(nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}
