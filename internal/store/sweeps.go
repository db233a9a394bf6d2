package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// LastSweep returns when the sweep of that name last finished, zero if never, and the current
// time, both by the database's clock.
func (s *Store) LastSweep(ctx context.Context, name string) (finished, now time.Time, err error) {
	err = s.gorm.WithContext(ctx).Raw("SELECT (SELECT finished_at FROM sweeps WHERE name = ?), ?", name, s.dialect.now()).
		Row().Scan(timeInto(&finished), timeInto(&now))
	return finished, now, s.failed(ctx, err, "read when %s was last swept", name)
}

// SweepFinished records that the sweep of that name finished now.
func (s *Store) SweepFinished(ctx context.Context, name string) error {
	return wrap(s.writeSweep(ctx, name, s.dialect.now()), "record the sweep of %s", name)
}

func (s *Store) writeSweep(ctx context.Context, name string, at any) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec(s.dialect.replace("sweeps", 1, "name", "finished_at"), name, at).Error
	})
}

// KeepAction writes what an operator has done. It cuts long texts.
func (s *Store) KeepAction(ctx context.Context, who, action, result string) error {
	return wrap(s.transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec("INSERT INTO operator_actions (at, who, action, result) VALUES (?, ?, ?, ?)", s.dialect.now(),
			fmt.Sprintf("%.255s", who), fmt.Sprintf("%.2000s", action), fmt.Sprintf("%.2000s", result)).Error
	}), "write what was done to operator_actions")
}

// keptPause is the row of sweeps for the pause of a sweep. No topic has such a name.
func keptPause(name string) string { return name + "/pause" }

// KeepPause stores until when the sweeps of that name are paused, for pauses that are not in the
// database. A time that is over means that no pause is on.
func (s *Store) KeepPause(ctx context.Context, name string, until time.Time) error {
	return wrap(s.writeSweep(ctx, keptPause(name), s.dialect.time(until)), "keep the pause of sweeps of %s", name)
}

// KeptPause returns the time that KeepPause stored last. If there is none, known is false.
func (s *Store) KeptPause(ctx context.Context, name string) (until time.Time, known bool, err error) {
	until, _, err = s.LastSweep(ctx, keptPause(name))
	return until, !until.IsZero(), err
}

// ClosedBetween returns up to limit orders that have a receipt and were closed at or after from and before to, with
// the time of the close, sorted by that time and id. Of the orders closed at from it leaves out those up to the id
// after.
func (s *Store) ClosedBetween(ctx context.Context, from, to time.Time, after string, limit int) ([]orderclose.Outcome, error) {
	page, err := readAll(s.gorm.WithContext(ctx), `SELECT order_id, closed_at FROM receipts
 WHERE closed_at >= ? AND closed_at < ? AND (closed_at > ? OR order_id > ?) ORDER BY closed_at, order_id LIMIT ?`,
		[]any{s.dialect.time(from), s.dialect.time(to), s.dialect.time(from), after, limit},
		func(o *orderclose.Outcome) []any {
			o.Verdict = orderclose.Closed
			return []any{&o.OrderID, timeInto(&o.At)}
		})
	return page, s.failed(ctx, err, "read the orders that were closed after %v", from)
}

// recheckRow is the row of sweeps for the rechecks of a pipeline, step after the close. No topic has such a
// name.
func recheckRow(name string, step time.Duration) string {
	return name + "/recheck/" + orderclose.ShortDuration(step)
}

// Rechecked returns up to which time of the close the payment provider was asked about orders step after
// their close, zero if it never was, and the current time, both by the database's clock.
func (s *Store) Rechecked(ctx context.Context, name string, step time.Duration) (until, now time.Time, err error) {
	return s.LastSweep(ctx, recheckRow(name, step))
}

// KeepRechecked stores the time that Rechecked returns.
func (s *Store) KeepRechecked(ctx context.Context, name string, step time.Duration, until time.Time) error {
	return wrap(s.writeSweep(ctx, recheckRow(name, step), s.dialect.time(until)), "keep how far the orders of %s were rechecked", name)
}
