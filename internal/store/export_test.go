package store

import "time"

// SetRetryFor sets how long a transaction is tried again that lost a lock wait.
func (s *Store) SetRetryFor(d time.Duration) { s.retryFor = d }

// LineStatement returns the statement by which a close reads lines.
func (s *Store) LineStatement() string { return s.q.single.lockLines }

// WithLimit sets how long a statement on a program's own pool may take.
func (o Options) WithLimit(d time.Duration) Options {
	o.limit = d
	return o
}
