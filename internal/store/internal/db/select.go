package db

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// readLimit is after how long the server ends a SELECT of Select.
const readLimit = 2 * time.Second

// Limited returns a context with which the server ends each SELECT after a time, on PostgreSQL outside of transactions and in those that
// only read. So nothing goes on there when its client has gone. SQLite is in this process.
func Limited(ctx context.Context, after time.Duration) context.Context {
	return context.WithValue(ctx, postgres.StatementTimeout{}, after)
}

// LimitReads is Limited with the time of Select.
func (s *Handle) LimitReads(ctx context.Context) context.Context {
	return Limited(ctx, cmp.Or(s.ReadLimit, readLimit))
}

// Select executes a SELECT that the server ends after readLimit, and calls each for its rows. Then the error wraps overdue.ErrSlow.
func (s *Handle) Select(ctx context.Context, query string, args []any, each func(*sql.Rows) error) (err error) {
	limited := s.LimitReads(ctx)
	if s.Clock() != nil { // the database is in this process
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, cmp.Or(s.ReadLimit, readLimit))
		defer cancel()
	}
	tx, read := s.Gorm.WithContext(limited), func(tx *gorm.DB) error { return EachRow(tx, query, args, each) }
	if of := s.Dialect.LimitedRead; of != nil {
		err = tx.Transaction(read, of)
	} else {
		err = read(tx)
	}
	if err != nil && ctx.Err() == nil && (IsSlow(err) || errors.Is(limited.Err(), context.DeadlineExceeded)) {
		return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, overdue.ErrSlow, err)
	}
	return err
}

// IsSlow reports whether the server has ended a statement after a time limit.
func IsSlow(err error) bool { return HasCode(err, SlowCodes) }

// mysqlConn is what a connection of the driver of MySQL has.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// limitedConn gives a SELECT the limit of its context.
type limitedConn struct{ mysqlConn }

// QueryContext implements driver.QueryerContext. MariaDB executes the first comment, and MySQL takes the second for a hint.
func (c limitedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	limit, limited := ctx.Value(postgres.StatementTimeout{}).(time.Duration)
	if rest, is := strings.CutPrefix(query, "SELECT "); is && limited {
		query = fmt.Sprintf("/*M!100600 SET STATEMENT max_statement_time = %v FOR */ SELECT /*+ MAX_EXECUTION_TIME(%d) */ %s", limit.Seconds(),
			limit.Milliseconds(), rest)
	}
	return c.mysqlConn.QueryContext(ctx, query, args)
}
