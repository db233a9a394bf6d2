package store

import (
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// SetRetryFor sets how long a transaction is tried again that lost a lock wait.
func (s *Store) SetRetryFor(d time.Duration) { s.RetryFor = d }

// SetReadLimit sets after how long the server ends a read of the loop.
func (s *Store) SetReadLimit(d time.Duration) { s.ReadLimit = d }

// orders returns the table of orders.
func (s *Store) orders() []*db.Table {
	in, _ := s.Everywhere(context.Background()) // one table is known without a query
	return in.All
}

// ReadStatement returns the statement of ReadOverdue, and its arguments.
func (s *Store) ReadStatement(w overdue.Window) (string, []any) {
	delays, _ := s.Delays(s.Gorm) // without due times by rule they are in a column
	return s.Q.OverdueRows(s.orders(), delays, w)
}

// LineStatement returns the statement by which a close reads lines.
func (s *Store) LineStatement() string { return s.orders()[0].LockLines }

// WithLimit sets how long a statement on PostgreSQL may take.
func (o Options) WithLimit(d time.Duration) Options {
	o.limit = d
	return o
}

// PageStatement returns the statement of a page, and its arguments.
func (s *Store) PageStatement(cutoff time.Time, after orderclose.Order, limit int) (string, []any) {
	query, args, _ := s.Page(s.Gorm, s.orders(), s.Q.OpenPage(cutoff, after, limit))
	return query, args
}
