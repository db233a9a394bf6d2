package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

const (
	// remindBatch is how many orders Remind locks at once. A payment of one of them waits for the transaction.
	remindBatch = 100
	// remindersKept is how long after its due time an order's reminders are kept, for people who ask for them.
	remindersKept = 7 * 24 * time.Hour
)

// Reminder asks for one reminder of an order.
type Reminder struct {
	orderclose.Order               // as DueBetween returned it
	Deadline         time.Time     // until when the customer is asked to pay
	Before           time.Duration // the time from the reminder to Deadline
}

// Remind writes the event and the row of each reminder, in one transaction for up to remindBatch of them. The
// reminders are in the order of due times; of several for one order, it writes one. It skips an order that
//
//   - is not unpaid any more, or has another due time than the reminder says
//   - had this reminder or a shorter one for this due time
//   - has reached its deadline by the database's clock
//   - is excluded by the mapping, or whose closing by sweeps is paused
//
// The rows of the orders stay locked until the commit. So no reminder is written after the commit of a
// payment, and of several processes one writes it. An order whose row another transaction locks is not
// reminded now: locked is how many.
//
// late has, for each reminder that was written, how long after its time that was. After an error some reminders may
// be written; asking again is safe.
func (s *Store) Remind(ctx context.Context, reminders []Reminder) (late []time.Duration, locked int, err error) {
	for part := range slices.Chunk(reminders, remindBatch) {
		wrote, skipped, err := s.remind(ctx, part)
		if late, locked = append(late, wrote...), locked+skipped; err != nil {
			return late, locked, db.Wrap(err, "write %d reminders from order %q on", len(part), part[0].ID)
		}
	}
	return late, locked, nil
}

// remind writes reminders in a transaction that has locked their orders.
func (s *Store) remind(ctx context.Context, reminders []Reminder) (late []time.Duration, locked int, err error) {
	// Rounds overlap: orders that were reminded before must not be locked again.
	reminders, err = s.unsent(s.Gorm.WithContext(ctx), reminders)
	if err != nil || len(reminders) == 0 {
		return nil, 0, s.FailedTo(ctx, err, "read earlier reminders")
	}
	reqs := make([]orderclose.CloseRequest, len(reminders))
	for i, r := range reminders {
		reqs[i] = db.RequestOf(r.Order)
	}
	err = s.WithOrders(ctx, reqs, closetx.SkipLocked, orderclose.PathSweep, func(c *closetx.Rows) error {
		locked = len(c.Contended)
		left, err := s.unsent(c.Tx, reminders) // with the rows of other processes
		if err == nil {
			late, err = writeReminders(c, left)
		}
		return err
	})
	if errors.Is(err, orderclose.ErrPaused) {
		return nil, 0, nil
	}
	return late, locked, err
}

// dueKey is an order with a due time, in unix milliseconds.
type dueKey struct {
	id  string
	due int64
}

func (r Reminder) key() dueKey { return dueKey{r.ID, orderclose.CeilMilli(r.Due).UnixMilli()} }

// unsent returns the reminders whose order had neither the same one nor a shorter one for the same due time.
func (s *Store) unsent(tx *gorm.DB, reminders []Reminder) ([]Reminder, error) {
	ids := make([]string, len(reminders))
	for i, r := range reminders {
		ids[i] = r.ID
	}
	first, last := orderclose.CeilMilli(reminders[0].Due), orderclose.CeilMilli(reminders[len(reminders)-1].Due)
	sent := map[dueKey]time.Duration{} // Before of the last one
	err := db.EachRow(tx, "SELECT order_id, due_at, MIN(before_ms) FROM order_reminders WHERE due_at >= ? AND due_at <= ? AND order_id IN ?"+
		" GROUP BY due_at, order_id",
		[]any{s.Handle.Dialect.Time(first), s.Handle.Dialect.Time(last), ids}, func(rows *sql.Rows) error {
			var id string
			var due time.Time
			var before int64
			err := rows.Scan(&id, db.TimeInto(&due), &before)
			sent[dueKey{id, due.UnixMilli()}] = time.Duration(before) * time.Millisecond
			return err
		})
	return slices.DeleteFunc(slices.Clone(reminders), func(r Reminder) bool {
		last, was := sent[r.key()]
		return was && last <= r.Before
	}), err
}

// writeReminders writes the reminders of orders that LockOrders has locked, if they are still unpaid.
func writeReminders(c *closetx.Rows, reminders []Reminder) (late []time.Duration, err error) {
	d := c.S.Dialect
	rows := db.Insert{Into: "order_reminders (due_at, order_id, before_ms, created_at)"}
	events := db.Insert{Into: "outbox_events (order_id, payload, created_at)"}
	for _, r := range reminders {
		row := c.Orders[r.ID]
		if row.Verdict != orderclose.NotDue || !row.Due.Equal(r.Due) || !c.Now.Before(r.Deadline) || c.Paused[row.Category] { //mutant:reminder-after-payment
			continue
		}
		payload, err := orderclose.OrderReminder{
			OrderID: r.ID, Category: row.Category, Due: row.Due, Deadline: r.Deadline, BeforeMillis: r.Before.Milliseconds(),
			RemindedAt: c.Now, Version: max(row.Version, 0), Columns: row.Columns,
		}.Encode()
		if err != nil {
			return nil, err
		}
		now := d.Time(c.Now)
		rows.Row(d.Time(orderclose.CeilMilli(r.Due)), r.ID, r.Before.Milliseconds(), now)
		events.Row(r.ID, string(payload), now)
		late = append(late, c.Now.Sub(r.Deadline.Add(-r.Before)))
		delete(c.Orders, r.ID) // two tables of months may have it: one reminder an order
	}
	if err := rows.Exec(c.Tx, d); err != nil {
		return nil, err
	}
	return late, events.Exec(c.Tx, d)
}

// ForgetReminders deletes the reminders of orders that were due more than remindersKept before now, in transactions
// with the orders of one minute.
func (s *Store) ForgetReminders(ctx context.Context, now time.Time) (err error) {
	for until := now.Add(-remindersKept); err == nil; {
		var oldest time.Time
		err = s.Gorm.WithContext(ctx).Raw("SELECT MIN(due_at) FROM order_reminders WHERE due_at < ?", s.Handle.Dialect.Time(until)).Row().Scan(db.TimeInto(&oldest))
		if err != nil || oldest.IsZero() {
			break
		}
		end := oldest.Add(time.Minute)
		if end.After(until) {
			end = until
		}
		err = s.Transact(ctx, func(tx *gorm.DB) error {
			return tx.Exec("DELETE FROM order_reminders WHERE due_at < ?", s.Handle.Dialect.Time(end)).Error
		})
	}
	return s.FailedTo(ctx, err, "delete old reminders")
}
