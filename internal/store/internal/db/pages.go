package db

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// Overdue returns up to limit orders that are unpaid and were due at or before cutoff, ordered
// by due time and id, after the order after, which is the last order of the previous page. The
// zero Order begins at the oldest. The orders have ID, Category, CreatedAt, Due and the Attributes of the
// mapping. Rows without an id are skipped. The error wraps orderclose.ErrUnavailable if the database failed. The first page
// returns a *MappingError if row-level security may hide orders.
func (s *Handle) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	if after.ID == "" && after.Due.IsZero() {
		if err := s.SeesAllRows(ctx); err != nil {
			return nil, err
		}
	}
	orders, err := s.overdue(ctx, cutoff, after, limit)
	return orders, s.FailedTo(ctx, err, "read overdue orders after %q", after.ID)
}

// DueBetween returns up to limit unpaid orders with a due time in [from, to], in the order and
// with the fields of Overdue. from is rounded down to the column's precision. It continues
// after the order after; the zero Order begins at from.
func (s *Handle) DueBetween(ctx context.Context, from, to time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	if after.Due.IsZero() {
		after = orderclose.Order{Due: from} // from is rounded down, so an order of an earlier page may be due before it
	}
	orders, err := s.overdue(ctx, to, after, limit)
	return orders, s.FailedTo(ctx, err, "read orders due from %s to %s after %q", from.Format(time.RFC3339), to.Format(time.RFC3339), after.ID)
}

// overdueHalf is how many of the oldest and how many of the newest orders OverdueNow reads at most.
const overdueHalf = 500

// OverdueNow returns unpaid orders that have been due for longer than the grace by the database's clock, which
// it returns too. Orders that the mapping excludes are left out. It reads at most 1,000 rows of the index on
// status and due time, whatever the mapping excludes: the 500 oldest, and the 500 newest of the others. So orders that
// stay overdue on purpose never hide new ones. more says that it did not read all of them. The error wraps
// orderclose.ErrUnavailable if the database failed.
func (s *Handle) OverdueNow(ctx context.Context, grace time.Duration) (orders []orderclose.Order, now time.Time, more bool, err error) {
	if now, err = s.Now(ctx); err != nil {
		return nil, now, false, err
	}
	in, err := s.AllTables(ctx)
	last := slices.Repeat([]orderclose.Order{{Due: s.Q.NotBefore()}}, len(in)) // the oldest orders of each table end here
	left := overdueHalf
	read := func(t *Table, after *orderclose.Order, newest bool) {
		if err != nil || left == 0 {
			return
		}
		p := s.Q.EveryPage(s.Q.M.Status.From, now.Add(-grace), *after, left) //mutant:just-due-overdue
		p.last, p.newest = condition{"NULL", nil}, newest
		if s.Q.Where.SQL != "" {
			p.last = condition{"CASE WHEN " + s.Q.Where.SQL + " THEN NULL ELSE 0 END", s.Q.Where.Args}
		}
		err = s.ReadPage(s.Gorm.WithContext(ctx), []*Table{t}, p, func(o orderclose.Order, excluded any) {
			left--
			if *after = o; excluded == nil { //mutant:excluded-overdue
				orders = append(orders, o)
			}
		})
	}
	for i, t := range slices.Backward(in) { // the oldest month first
		read(t, &last[i], false)
	}
	if left == 0 {
		left = overdueHalf
		for i, t := range in {
			read(t, &last[i], true) //mutant:old-hide-overdue
		}
		more = left == 0
	}
	return orders, now, more, s.FailedTo(ctx, err, "read the overdue orders")
}

// Count counts the rows of a query.
func (s *Handle) Count(ctx context.Context, query string, args []any) (n int64, err error) {
	err = s.Gorm.WithContext(ctx).Raw("SELECT COUNT(*) FROM ("+query+") AS oc_all", args...).Scan(&n).Error
	return n, err
}

func (s *Handle) overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	in, err := s.AllTables(ctx)
	if err != nil || len(in) == 0 {
		return nil, err
	}
	var orders []orderclose.Order
	err = s.ReadPage(s.Gorm.WithContext(ctx), in, s.Q.OpenPage(cutoff, after, limit), func(o orderclose.Order, attributes any) {
		o.Attributes, _ = s.Q.DecodeAttributes(attributes) // the database wrote the JSON
		orders = append(orders, o)
	})
	return orders, err
}

// CountPage counts the rows of a page of one table.
func (s *Handle) CountPage(ctx context.Context, t *Table, p Page) (int64, error) {
	query, args, err := s.Page(s.Gorm.WithContext(ctx), []*Table{t}, p)
	if err != nil {
		return 0, err
	}
	return s.Count(ctx, query, args)
}

// ReadPage calls each for the orders of a page, with the value of its last column. A
// creation time that is not a time must not end a page, and is the zero time.
func (s *Handle) ReadPage(tx *gorm.DB, in []*Table, p Page, each func(o orderclose.Order, last any)) error {
	query, args, err := s.Page(tx, in, p)
	if err != nil {
		return err
	}
	return EachRow(tx, query, args, func(rows *sql.Rows) (err error) {
		var o orderclose.Order
		var created, due, last any
		if err := rows.Scan(&o.ID, Nullable(&o.Category), &created, &due, &last); err != nil {
			return err
		}
		if o.Due, _, err = s.Q.Due.Decode(due); err != nil {
			return Unavailable(tx.Statement.Context, err) // the mapping is wrong, not an order
		}
		o.CreatedAt, _, _ = s.Q.Created.Decode(created)
		each(o, last)
		return nil
	})
}

// Page returns the statement for a page of tables, and its arguments.
func (s *Handle) Page(tx *gorm.DB, in []*Table, p Page) (query string, args []any, err error) {
	delays, err := s.Delays(tx)
	query, args = s.Q.page(in, delays, p)
	return query, args, err
}
