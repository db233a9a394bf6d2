package store

import (
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

// SetRetryFor sets how long a transaction is tried again that lost a lock wait.
func (s *Store) SetRetryFor(d time.Duration) { s.retryFor = d }

// SetReadLimit sets after how long the server ends a read of the loop.
func (s *Store) SetReadLimit(d time.Duration) { s.readLimit = d }

// ReadStatement returns the statement of ReadOverdue, and its arguments.
func (s *Store) ReadStatement(w overdue.Window) (string, []any) {
	return s.q.overdueRows([]*table{s.q.tables.list.Load().known[0]}, columnDelays, w)
}

// LineStatement returns the statement by which a close reads lines.
func (s *Store) LineStatement() string { return s.q.tables.list.Load().known[0].lockLines }

// Untried returns what doctor says about variables that the list of settings does not know.
func (s *Store) Untried(ctx context.Context) (string, error) { return s.untried(ctx) }

// WithLimit sets how long a statement on PostgreSQL may take.
func (o Options) WithLimit(d time.Duration) Options {
	o.limit = d
	return o
}

// PageStatement returns the statement of a page, and its arguments.
func (s *Store) PageStatement(cutoff time.Time, after orderclose.Order, limit int) (string, []any) {
	return s.q.page([]*table{s.q.tables.list.Load().known[0]}, columnDelays, s.q.openPage(cutoff, after, limit))
}
