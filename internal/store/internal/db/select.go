package db

import (
	"cmp"
	"context"
	"database/sql"
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

// Select executes a SELECT that the server ends after readLimit, and calls each for its rows. Then the error wraps overdue.ErrSlow.
func (s *Handle) Select(ctx context.Context, query string, args []any, each func(*sql.Rows) error) (err error) {
	limit, limited := cmp.Or(s.ReadLimit, readLimit), ctx
	switch s.Dialect.Name {
	case MySQL: // MariaDB executes the first comment, and MySQL takes the second for a hint
		query = fmt.Sprintf("/*M!100600 SET STATEMENT max_statement_time = %v FOR */ SELECT /*+ MAX_EXECUTION_TIME(%d) */ %s", limit.Seconds(),
			limit.Milliseconds(), strings.TrimPrefix(query, "SELECT "))
		err = EachRow(s.Gorm.WithContext(ctx), query, args, each)
	case Postgres: // a setting of the session would be that of another client behind a pooler
		ctx := context.WithValue(ctx, postgres.StatementTimeout{}, limit)
		err = s.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return EachRow(tx, query, args, each) }, &sql.TxOptions{ReadOnly: true})
	default:
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
		err = EachRow(s.Gorm.WithContext(limited), query, args, each)
	}
	if err != nil && ctx.Err() == nil && (HasCode(err, SlowCodes) || errors.Is(limited.Err(), context.DeadlineExceeded)) {
		return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, overdue.ErrSlow, err)
	}
	return err
}
