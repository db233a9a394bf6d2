package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// recentCloses is how many closes RecentCloses reads at most.
const recentCloses = 10_000

// RecentCloses calls each for the newest closes since a time that no failed try had delayed, 10,000 at most, the oldest first. It is one
// statement, which the server ends after 2 s.
func (s *Store) RecentCloses(ctx context.Context, since time.Time, each func(order string, due, closed time.Time)) error {
	query := "SELECT order_id, due, closed_at, attempts FROM (SELECT order_id, due, closed_at, attempts FROM receipts WHERE closed_at >= ? " +
		"ORDER BY closed_at DESC, order_id DESC LIMIT ?) AS recent ORDER BY closed_at, order_id"
	err := s.Select(ctx, query, []any{s.Handle.Dialect.Time(since), recentCloses}, func(rows *sql.Rows) error {
		var order string
		var due, closed time.Time
		var attempts int
		err := rows.Scan(&order, db.TimeInto(&due), db.TimeInto(&closed), &attempts)
		if err == nil && attempts == 0 {
			each(order, due, closed)
		}
		return err
	})
	return s.FailedTo(ctx, err, "read the closes since %v", since)
}
