package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

const (
	// pausesFor is how long BeginTurn returns a pause that has ended.
	pausesFor = 24 * time.Hour
	// seesAllFor is for how long BeginTurn knows that no row-level security hides orders.
	seesAllFor = time.Minute
	// quietRest is for how long BeginTurn does not ask whether an order is due after that question took too long.
	quietRest = time.Minute
)

// ReadOverdue returns the unpaid orders of a window that the mapping does not exclude, with ID, Category, CreatedAt and Due. Rows without
// an id are skipped. It is one statement, and with due times by rule one more for the delays. Of each range it reads at most
// overdue.MaxRows rows of the index, whatever they are. What it found beyond the range that came least far it leaves out. The error wraps
// overdue.ErrSlow if the server has ended the statement after 2 s, and orderclose.ErrUnavailable whenever the database failed.
func (s *Store) ReadOverdue(ctx context.Context, w overdue.Window) (overdue.Found, error) {
	found, err := s.readOverdue(ctx, w)
	return found, s.FailedTo(ctx, err, "read the overdue orders from %v to %v", w.After.Due, w.To)
}

func (s *Store) readOverdue(ctx context.Context, w overdue.Window) (found overdue.Found, err error) {
	found.All = true
	in, err := s.AllTables(ctx)
	if err != nil || len(in) == 0 {
		return found, err
	}
	delays, err := s.Delays(s.Gorm.WithContext(ctx))
	if err != nil {
		return found, err
	}
	query, args := s.Q.OverdueRows(in, delays, w)
	err = s.Select(ctx, query, args, func(rows *sql.Rows) error { return s.overdueRow(ctx, rows, &found) })
	return found, err
}

// overdueRow reads a row of ReadOverdue.
func (s *Store) overdueRow(ctx context.Context, rows *sql.Rows, found *overdue.Found) (err error) {
	var last, full sql.NullInt64
	var id sql.NullString
	var o orderclose.Order
	var key sql.RawBytes
	var created, due any
	err = rows.Scan(&id, db.Nullable(&o.Category), &created, &due, &key, &last, &full)
	if err != nil || !found.All { // not All: it is beyond the range that came least far
		return err
	}
	if o.Due, _, err = s.Q.Due.Decode(due); err != nil {
		return db.Unavailable(ctx, err) // the mapping is wrong, not an order
	}
	o.ID = id.String
	o.CreatedAt, _, _ = s.Q.Created.Decode(created) // a page must not end at a creation time that is not a time
	if last.Int64 == 1 {
		found.Orders = append(found.Orders, o)
	}
	if full.Int64 == 1 {
		found.All, found.Reached = false, o
	}
	return nil
}

// BeginTurn returns the database's clock, the pauses, and whether no unpaid order was due at a time or before; with due times by rule it does
// not know. It is one statement. Once a minute it also looks whether row-level security may hide orders; then the error is a *MappingError.
func (s *Store) BeginTurn(ctx context.Context, at time.Time) (b overdue.Begin, err error) {
	if !closetx.Within(&s.seesAll, seesAllFor) {
		if err := s.SeesAllRows(ctx); err != nil {
			return b, err
		}
		s.seesAll.Store(new(time.Now()))
	}
	due, args := "1", []any{}
	if !s.Q.M.ByRule && !closetx.Within(&s.quietSlow, quietRest) {
		in, err := s.AllTables(ctx)
		if err != nil {
			return b, s.FailedTo(ctx, err, "read the clock and the pauses")
		}
		due, args = s.Q.AnyDue(in, at)
	}
	query := "SELECT oc_now, oc_due, path, category, until_at, reason, created_at FROM (SELECT ? AS oc_now, " + due +
		" AS oc_due) AS oc_clock LEFT JOIN pauses ON 1 = 1"
	err = s.Select(ctx, query, append([]any{s.Handle.Dialect.Now()}, args...), func(rows *sql.Rows) error {
		var p pausing.Pause
		var path sql.NullString
		var due int
		err := rows.Scan(db.TimeInto(&b.Now), &due, &path, db.Nullable(&p.Category), db.TimeInto(&p.Until), db.Nullable(&p.Reason), db.TimeInto(&p.CreatedAt))
		if err == nil && path.Valid && p.Until.After(b.Now.Add(-pausesFor)) {
			b.Pauses = append(b.Pauses, p)
		}
		b.Quiet = due == 0
		return err
	})
	if len(args) > 0 && errors.Is(err, overdue.ErrSlow) {
		s.quietSlow.Store(new(time.Now()))
		return s.BeginTurn(ctx, at)
	}
	return b, s.FailedTo(ctx, err, "read the clock and the pauses")
}
