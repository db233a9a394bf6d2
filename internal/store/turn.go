package store

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
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// readLimit is after how long the server ends a read of the loop.
	readLimit = 2 * time.Second
	// pausesFor is how long BeginTurn returns a pause that has ended.
	pausesFor = 24 * time.Hour
	// seesAllFor is for how long BeginTurn knows that no row-level security hides orders.
	seesAllFor = time.Minute
)

// ReadOverdue returns the unpaid orders of a window that the mapping does not exclude, with ID, Category, CreatedAt and Due. Rows without
// an id are skipped. It is one statement, and with due times by rule one more for the delays. Of each range it reads at most
// overdue.MaxRows rows of the index, whatever they are. What it found beyond the range that came least far it leaves out. The error wraps
// overdue.ErrSlow if the server has ended the statement after 2 s, and orderclose.ErrUnavailable whenever the database failed.
func (s *Store) ReadOverdue(ctx context.Context, w overdue.Window) (overdue.Found, error) {
	b, err := s.readTurn(ctx, w, false)
	return b.Found, s.failed(ctx, err, "read the overdue orders from %v to %v", w.After.Due, w.To)
}

// BeginTurn is ReadOverdue with the database's clock and the pauses, in the same statement. Once a minute it also looks whether row-level
// security may hide orders; then the error is a *MappingError.
func (s *Store) BeginTurn(ctx context.Context, w overdue.Window) (overdue.Begin, error) {
	if last := s.seesAll.Load(); last == nil || time.Since(*last) >= seesAllFor {
		if err := s.seesAllRows(ctx); err != nil {
			return overdue.Begin{}, err
		}
		s.seesAll.Store(new(time.Now()))
	}
	b, err := s.readTurn(ctx, w, true)
	return b, s.failed(ctx, err, "read the clock, the pauses and the overdue orders up to %v", w.To)
}

// readTurn reads a window, and with begin the clock and the pauses.
func (s *Store) readTurn(ctx context.Context, w overdue.Window, begin bool) (b overdue.Begin, err error) {
	b.All = true
	in, err := s.allTables(ctx)
	if err != nil || len(in) == 0 && !begin {
		return b, err
	}
	query, args := "", []any{}
	if len(in) > 0 {
		delays, err := s.delays(s.gorm.WithContext(ctx))
		if err != nil {
			return b, err
		}
		query, args = s.q.overdueRows(in, delays, w)
	}
	query, args = s.withBegin(query, args, begin)
	err = s.within(ctx, query+turnOrder(w.Newest), args, func(rows *sql.Rows) error {
		return s.turnRow(ctx, rows, &b)
	})
	return b, err
}

// turnOrder returns the order of the rows of a turn: those with the clock first.
func turnOrder(newest bool) string {
	return fmt.Sprintf(" ORDER BY oc_first, oc_due%[1]s, oc_key%[1]s", page{newest: newest}.order())
}

// withBegin adds the columns of a pause and the clock to the statement of a window, and with begin their rows. A row has one or the other,
// and NULL in the columns of the other, because MySQL unites no texts of different collations. query may be empty.
func (s *Store) withBegin(query string, args []any, begin bool) (string, []any) {
	const pauses = "SELECT 0 AS oc_first, oc_now, path, category AS pause_category, until_at, reason, created_at, NULL AS oc_id, NULL AS oc_category," +
		" NULL AS oc_created, NULL AS oc_due, NULL AS oc_key, NULL AS oc_last, NULL AS oc_full FROM (SELECT ? AS oc_now) AS oc_clock LEFT JOIN pauses ON 1 = 1"
	if query != "" {
		query = "SELECT 1 AS oc_first, NULL AS oc_now, NULL AS path, NULL AS pause_category, NULL AS until_at, NULL AS reason, NULL AS created_at," +
			" oc_found.* FROM (" + query + ") AS oc_found"
	}
	switch {
	case !begin:
		return query, args
	case query == "":
		return pauses, []any{s.dialect.now()}
	}
	return pauses + " UNION ALL " + query, append([]any{s.dialect.now()}, args...)
}

// turnRow reads a row of a turn.
func (s *Store) turnRow(ctx context.Context, rows *sql.Rows, b *overdue.Begin) (err error) {
	var first, last, full sql.NullInt64
	var now time.Time
	var p wire.Pause
	var path, id sql.NullString
	var o orderclose.Order
	var key sql.RawBytes
	var created, due any
	err = rows.Scan(&first, timeInto(&now), &path, nullable(&p.Category), timeInto(&p.Until), nullable(&p.Reason), timeInto(&p.CreatedAt),
		&id, nullable(&o.Category), &created, &due, &key, &last, &full)
	switch {
	case err != nil:
		return err
	case first.Int64 == 0:
		b.Now = now
		if path.Valid && p.Until.After(now.Add(-pausesFor)) {
			b.Pauses = append(b.Pauses, p)
		}
		return nil
	case !b.All: // it is beyond the range that came least far
		return nil
	}
	if o.Due, _, err = s.q.due.Decode(due); err != nil {
		return unavailable(ctx, err) // the mapping is wrong, not an order
	}
	o.ID = id.String
	o.CreatedAt, _, _ = s.q.created.Decode(created) // a page must not end at a creation time that is not a time
	if last.Int64 == 1 {
		b.Orders = append(b.Orders, o)
	}
	if full.Int64 == 1 {
		b.All, b.Reached = false, o
	}
	return nil
}

// within executes a SELECT that the server ends after readLimit, and calls each for its rows. Then the error wraps overdue.ErrSlow.
func (s *Store) within(ctx context.Context, query string, args []any, each func(*sql.Rows) error) (err error) {
	limit, limited := cmp.Or(s.readLimit, readLimit), ctx
	switch s.dialect.Name {
	case MySQL: // MariaDB executes the first comment, and MySQL takes the second for a hint
		query = fmt.Sprintf("/*M!100600 SET STATEMENT max_statement_time = %v FOR */ SELECT /*+ MAX_EXECUTION_TIME(%d) */ %s", limit.Seconds(),
			limit.Milliseconds(), strings.TrimPrefix(query, "SELECT "))
		err = eachRow(s.gorm.WithContext(ctx), query, args, each)
	case Postgres: // a setting of the session would be that of another client behind a pooler
		ctx := context.WithValue(ctx, postgres.StatementTimeout{}, limit)
		err = s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return eachRow(tx, query, args, each) }, &sql.TxOptions{ReadOnly: true})
	default:
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
		err = eachRow(s.gorm.WithContext(limited), query, args, each)
	}
	if err != nil && ctx.Err() == nil && (hasCode(err, slowCodes) || errors.Is(limited.Err(), context.DeadlineExceeded)) {
		return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, overdue.ErrSlow, err)
	}
	return err
}
