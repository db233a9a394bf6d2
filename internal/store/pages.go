package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"orderclose"
)

// Overdue returns up to limit orders that are unpaid and were due at cutoff or
// before, oldest first, and by id where they are due alike. It goes on behind
// after, the last order of the page before; the zero Order begins at the oldest.
// The orders have ID, Category, CreatedAt and Due. Rows without an id are left out.
func (s *Store) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	orders, err := s.overdue(ctx, cutoff, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read overdue orders after %q: %w", after.ID, s.explain(ctx, err))
	}
	return orders, nil
}

// DueBetween returns up to limit orders that are unpaid and due from one moment to
// another, both included, in the order and with the fields of Overdue. From is rounded
// down to what the column tells apart. It goes on behind after; the zero Order begins
// at from.
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

// CountOverdue is how many orders Overdue has in all. It reads as many rows of the
// index.
func (s *Store) CountOverdue(ctx context.Context, cutoff time.Time) (n int64, err error) {
	in := []*table{s.q.whole}
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
	in := []*table{s.q.whole}
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
			return nil, unavailable(ctx, err) // the mapping's fault
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// createdAt is when an order was made. The zero time stands for every value that is no
// moment, so that it ends no page: nothing is decided by when an order was made.
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

// pages is one statement for a page out of all the tables. Several are merged by
// due time and id: so a page tells where the next one begins, whatever table an
// order was found in. Tables without overdue orders cost a look at their index.
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
