package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
)

// Overdue returns up to limit orders that are unpaid and were due at or before cutoff, ordered
// by due time and id, after the order after, which is the last order of the previous page. The
// zero Order begins at the oldest. The orders have ID, Category, CreatedAt and Due. Rows
// without an id are skipped. The error wraps orderclose.ErrUnavailable if the database failed.
func (s *Store) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	orders, err := s.overdue(ctx, cutoff, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read overdue orders after %q: %w", after.ID, s.explain(ctx, err))
	}
	return orders, nil
}

// DueBetween returns up to limit unpaid orders with a due time in [from, to], in the order and
// with the fields of Overdue. from is rounded down to the column's precision. It continues
// after the order after; the zero Order begins at from.
func (s *Store) DueBetween(ctx context.Context, from, to time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	if after.Due.Before(from) {
		after = orderclose.Order{Due: from}
	}
	orders, err := s.overdue(ctx, to, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read orders due from %s to %s after %q: %w", from.Format(time.RFC3339), to.Format(time.RFC3339), after.ID, s.explain(ctx, err))
	}
	return orders, nil
}

// CountOverdue returns how many orders Overdue returns in all pages. It reads one entry of the
// index for each.
func (s *Store) CountOverdue(ctx context.Context, cutoff time.Time) (n int64, err error) {
	in := []*table{s.q.single}
	if s.q.months != nil {
		if in, err = s.monthTables(ctx); err != nil || len(in) == 0 {
			return 0, err
		}
	}
	for _, t := range in {
		var part int64
		query := "SELECT COUNT(*) FROM (" + t.page + ") AS oc_all"
		if err := s.gorm.WithContext(ctx).Raw(query, s.q.pageArgs(cutoff, orderclose.Order{}, math.MaxInt32)...).Scan(&part).Error; err != nil {
			return 0, fmt.Errorf("count overdue orders: %w", s.explain(ctx, err))
		}
		n += part
	}
	return n, nil
}

func (s *Store) overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	in := []*table{s.q.single}
	if s.q.months != nil {
		var err error
		if in, err = s.monthTables(ctx); err != nil || len(in) == 0 {
			return nil, err
		}
	}
	query, args := s.q.pages(in, cutoff, after, limit)
	rows, err := s.gorm.WithContext(ctx).Raw(query, args...).Rows()
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var orders []orderclose.Order
	for rows.Next() {
		var o orderclose.Order
		var created, due any
		if err := rows.Scan(&o.ID, nullable(&o.Category), &created, &due); err != nil {
			return nil, err
		}
		o.CreatedAt = s.q.createdAt(created)
		if o.Due, _, err = s.q.due.Decode(due); err != nil {
			return nil, unavailable(ctx, err) // the mapping is wrong, not an order
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// createdAt returns when an order was created, or the zero time for a value that is not a time.
// Such a value must not end a page: nothing depends on the creation time.
func (q *statements) createdAt(src any) time.Time {
	if q.m.Created == nil {
		return time.Time{}
	}
	t, _, err := q.created.Decode(src)
	if err != nil {
		return time.Time{}
	}
	return t
}

// pages returns one statement for a page of all tables. It merges the tables by due time and
// id, so the last order of a page is the position of the next page in every table. A table
// without overdue orders costs one index lookup.
func (q *statements) pages(in []*table, cutoff time.Time, after orderclose.Order, limit int) (query string, args []any) {
	if len(in) == 1 {
		return in[0].page, q.pageArgs(cutoff, after, limit)
	}
	parts := make([]string, len(in))
	for i, t := range in {
		parts[i] = fmt.Sprintf("SELECT * FROM (%s) AS s%d", t.page, i)
		args = append(args, q.pageArgs(cutoff, after, limit)...)
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY oc_due, oc_id LIMIT ?", append(args, limit)
}
