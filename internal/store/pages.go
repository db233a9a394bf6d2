package store

import (
	"context"
	"fmt"
	"time"

	"orderclose"
)

// oldest is before every due time that a database can hold.
var oldest = time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)

// Overdue returns up to limit orders that are unpaid and were due at cutoff or
// before, oldest first, and by id where they are due alike. It goes on behind
// after, the last order of the page before; the zero Order begins at the oldest.
// The orders have ID, Category, CreatedAt and Due.
func (s *Store) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	orders, err := s.overdue(ctx, cutoff, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read overdue orders after %q: %w", after.ID, s.explain(ctx, err))
	}
	return orders, nil
}

func (s *Store) overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	from := oldest
	if after.Due.After(oldest) {
		from = after.Due
	}
	at := s.dialect.time(from)
	// Spelt so that the index is entered at the right place and each row read is a
	// row found: a comparison of tuples reads the whole range.
	rows, err := s.gorm.WithContext(ctx).Raw("SELECT id, category, created_at, expire_at FROM orders"+s.dialect.byDue+
		" WHERE status = ? AND expire_at <= ? AND expire_at >= ? AND (expire_at > ? OR id > ?)"+
		" ORDER BY expire_at, id LIMIT ?",
		Unpaid, s.dialect.time(cutoff), at, at, after.ID, limit).Rows()
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var orders []orderclose.Order
	for rows.Next() {
		var o orderclose.Order
		if err := rows.Scan(&o.ID, &o.Category, timeInto(&o.CreatedAt), timeInto(&o.Due)); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}
