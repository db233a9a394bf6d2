package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/text"
)

// HoursFor is how long the row of an hour is kept, and hoursAtOnce how many older ones one write deletes.
const (
	HoursFor    = 90 * 24 * time.Hour
	hoursAtOnce = 100
)

// AddSweep adds the counts of a turn to those of the hour of a pipeline, which began at hour by the database's clock. The name of a pipeline
// is that of its close topic.
func (s *Store) AddSweep(ctx context.Context, pipeline string, hour time.Time, c overdue.Counts) error {
	query := s.Handle.Dialect.Upsert("sweeps", []string{"name", "hour"}, []string{"missed", "after_pause", "after_failure", "not_closed"},
		func(row, given func(column string) string, column string) string {
			return row(column) + " + " + given(column)
		})
	return db.Wrap(s.writeHour(ctx, pipeline, hour, query, c.Missed, c.AfterPause, c.AfterFailure, c.NotClosed), "add to the hour %v of %s", hour, pipeline)
}

// EndSweep writes that the compensation of an hour has ended: overdue.Finished, or overdue.Unfinished, which does not replace the other. took
// is how long its pass took.
func (s *Store) EndSweep(ctx context.Context, pipeline string, hour time.Time, state string, took time.Duration) error {
	// MySQL assigns in turn, so that the state comes last.
	query := s.Handle.Dialect.Upsert("sweeps", []string{"name", "hour"}, []string{"ended_at", "took_ms", "state"},
		func(row, given func(column string) string, column string) string {
			return fmt.Sprintf("CASE WHEN %s = '%s' AND %s <> '%[2]s' THEN %[4]s ELSE %[5]s END", row("state"), overdue.Finished, given("state"),
				row(column), given(column))
		})
	return db.Wrap(s.writeHour(ctx, pipeline, hour, query, s.Handle.Dialect.Now(), took.Milliseconds(), state), "end the hour %v of %s", hour, pipeline)
}

// writeHour writes the row of an hour. With the first write of an hour it deletes old rows.
func (s *Store) writeHour(ctx context.Context, pipeline string, hour time.Time, query string, values ...any) error {
	last, _ := s.hours.Load(pipeline)
	err := s.Transact(ctx, func(tx *gorm.DB) error {
		err := tx.Exec(query, append([]any{pipeline, s.Handle.Dialect.Time(hour)}, values...)...).Error
		if err != nil || last == any(hour.UnixMilli()) {
			return err
		}
		old, err := db.RowsOf(db.Own(tx), "SELECT hour FROM sweeps WHERE name = ? AND hour < ? ORDER BY hour LIMIT ?",
			[]any{pipeline, s.Handle.Dialect.Time(hour.Add(-HoursFor)), hoursAtOnce}, func(t *time.Time) []any { return []any{db.TimeInto(t)} })
		if err != nil || len(old) == 0 {
			return err
		}
		return tx.Exec("DELETE FROM sweeps WHERE name = ? AND hour <= ?", pipeline, s.Handle.Dialect.Time(old[len(old)-1])).Error
	})
	if err == nil {
		s.hours.Store(pipeline, hour.UnixMilli())
	}
	return err
}

// SweepHour returns the hour of a pipeline that began at hour; one with its Begin alone if nothing was written about it.
func (s *Store) SweepHour(ctx context.Context, pipeline string, hour time.Time) (overdue.Hour, error) {
	all, err := s.sweepHours(ctx, "hour = ?", pipeline, s.Handle.Dialect.Time(hour), 1)
	if err == nil && len(all) == 0 {
		all = []overdue.Hour{{Begin: hour}}
	}
	return db.First(all), err
}

// SweepHours returns the hours of a pipeline that began at from or later and that something was written about, the newest first.
func (s *Store) SweepHours(ctx context.Context, pipeline string, from time.Time, limit int) ([]overdue.Hour, error) {
	return s.sweepHours(ctx, "hour >= ?", pipeline, s.Handle.Dialect.Time(from), limit)
}

func (s *Store) sweepHours(ctx context.Context, condition string, args ...any) ([]overdue.Hour, error) {
	hours, err := db.RowsOf(db.Own(s.Gorm.WithContext(ctx)), "SELECT hour, missed, after_pause, after_failure, not_closed, state, ended_at, took_ms"+
		" FROM sweeps WHERE name = ? AND "+condition+" ORDER BY hour DESC LIMIT ?", args, func(h *overdue.Hour) []any {
		return []any{db.TimeInto(&h.Begin), &h.Missed, &h.AfterPause, &h.AfterFailure, &h.NotClosed, &h.State, db.TimeInto(&h.Ended), &h.TookMillis}
	})
	return hours, s.FailedTo(ctx, err, "read the hours of a pipeline")
}

// KeepAction writes what an operator has done. It cuts long texts.
func (s *Store) KeepAction(ctx context.Context, who, action, result string) error {
	return db.Wrap(s.Transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec("INSERT INTO operator_actions (at, who, action, result) VALUES (?, ?, ?, ?)", s.Handle.Dialect.Now(),
			fmt.Sprintf("%.255s", who), fmt.Sprintf("%.2000s", action), fmt.Sprintf("%.2000s", result)).Error
	}), "write what was done to operator_actions")
}

// ClosedBetween returns up to limit orders that have a receipt and were closed at or after from and before to, with
// the time of the close, sorted by that time and id. Of the orders closed at from it leaves out those up to the id
// after.
func (s *Store) ClosedBetween(ctx context.Context, from, to time.Time, after string, limit int) ([]orderclose.Outcome, error) {
	page, err := db.RowsOf(db.Own(s.Gorm.WithContext(ctx)), `SELECT order_id, closed_at FROM receipts
 WHERE closed_at >= ? AND closed_at < ? AND (closed_at > ? OR order_id > ?) ORDER BY closed_at, order_id LIMIT ?`,
		[]any{s.Handle.Dialect.Time(from), s.Handle.Dialect.Time(to), s.Handle.Dialect.Time(from), after, limit},
		func(o *orderclose.Outcome) []any {
			o.Verdict = orderclose.Closed
			return []any{&o.OrderID, db.TimeInto(&o.At)}
		})
	return page, s.FailedTo(ctx, err, "read the orders that were closed after %v", from)
}

// recheckRow is the name of the row for the rechecks of a pipeline, step after the close.
func recheckRow(name string, step time.Duration) string {
	return name + "/" + orderclose.ShortDuration(step)
}

// Rechecked returns up to which time of the close the payment provider was asked about orders step after
// their close, zero if it never was, and the current time, both by the database's clock.
func (s *Store) Rechecked(ctx context.Context, name string, step time.Duration) (until, now time.Time, err error) {
	err = s.Gorm.WithContext(ctx).Raw("SELECT (SELECT checked_until FROM rechecks WHERE name = ?), ?", recheckRow(name, step), s.Handle.Dialect.Now()).
		Row().Scan(db.TimeInto(&until), db.TimeInto(&now))
	return until, now, s.FailedTo(ctx, err, "read the row %s of rechecks", recheckRow(name, step))
}

// KeepRechecked stores the time that Rechecked returns.
func (s *Store) KeepRechecked(ctx context.Context, name string, step time.Duration, until time.Time) error {
	return db.Wrap(s.Transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec(s.Handle.Dialect.Replace("rechecks", []string{"name"}, "checked_until"), recheckRow(name, step), s.Handle.Dialect.Time(until)).Error
	}), "keep how far the orders of %s were rechecked", name)
}

// TakeLease takes the lease of a name for a holder if nobody has it or it has ended, and makes it longer if the holder has it. It then
// ends after expiry. held is false if another holder has it. The database's clock decides, and any proxy or pooler may be in between.
// Each of its statements is a transaction. A lease that ends later than twice expiry is from before the clock was set back.
func (s *Store) TakeLease(ctx context.Context, name, holder string, expiry time.Duration) (held bool, err error) {
	now, tx := s.Handle.Dialect.Millis(), s.Gorm.WithContext(ctx)
	taken := tx.Exec("UPDATE leases SET holder = ?, until_ms = ? + ? WHERE name = ? AND (holder = ? OR until_ms < ? OR until_ms > ? + ?)",
		holder, now, expiry.Milliseconds(), name, holder, now, now, 2*expiry.Milliseconds())
	if held, err = taken.RowsAffected > 0, taken.Error; !held && err == nil {
		var rows []int
		rows, err = db.RowsOf(db.Own(tx), "SELECT CASE WHEN holder = ? THEN 1 ELSE 0 END FROM leases WHERE name = ?", []any{holder, name},
			func(own *int) []any { return []any{own} })
		if held = len(rows) > 0 && rows[0] == 1; err == nil && len(rows) == 0 { // MySQL counts no row that has the same end already
			err = tx.Exec("INSERT INTO leases (name, holder, until_ms) VALUES (?, ?, ? + ?)", name, holder, now, expiry.Milliseconds()).Error
			held = err == nil
		}
	}
	if err != nil && s.Handle.Dialect.Fault(err) == db.FaultDuplicate { // another holder was first
		err = nil
	}
	return held && err == nil, db.Wrap(err, "take the lease %s", name)
}

// DropLease gives a lease back, if the holder has it.
func (s *Store) DropLease(ctx context.Context, name, holder string) error {
	return db.Wrap(s.Transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec("UPDATE leases SET until_ms = 0 WHERE name = ? AND holder = ?", name, holder).Error
	}), "give back the lease %s", name)
}

// LeaseHolders says who has a lease of any name, and until when by the database's clock, the latest end first.
func (s *Store) LeaseHolders(ctx context.Context) (holders []string, err error) {
	err = db.EachRow(s.Gorm.WithContext(ctx), "SELECT holder, until_ms FROM leases WHERE until_ms > ? ORDER BY until_ms DESC", []any{s.Handle.Dialect.Millis()},
		func(rows *sql.Rows) error {
			var holder string
			var until int64
			err := rows.Scan(&holder, &until)
			holders = append(holders, holder+" until "+text.Stamp(time.UnixMilli(until)))
			return err
		})
	return holders, db.Wrap(err, "read the leases")
}
