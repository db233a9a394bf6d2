package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"orderclose"
)

// maxIn is the longest IN list. MariaDB turns one of 1,000 or more into a join
// with a temporary table, and then rows are no longer locked in id order.
const maxIn = 999

// CloseOrders closes, in one transaction, the orders of reqs that are unpaid and
// due by the database's clock, gives their stock back and leaves a receipt of
// each, and an event in the outbox. It answers every request, in the order of reqs; of several for one order
// the first gets the verdict, and the others AlreadyClosed if that closed it.
//
// On an error nothing was closed, with one exception: if the connection broke
// during the commit it may have been done, and closing the same orders again
// says AlreadyClosed. An error that wraps orderclose.ErrUnavailable is no order's
// fault, nor is the context's, which it wraps as well. One that wraps
// orderclose.ErrContended means that some order's row was held by somebody else for
// too long. With that and with any other, the
// batch without the order at fault can succeed.
func (s *Store) CloseOrders(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	ids, attempts := distinct(reqs)
	if len(reqs) == 0 {
		return nil, nil
	}
	var c *closing
	err := s.transact(ctx, func(tx *gorm.DB) error {
		c = &closing{s: s, tx: tx, path: path, attempts: attempts, orders: map[string]lockedRow{}}
		return c.run(ids)
	})
	if err != nil {
		return nil, fmt.Errorf("close %d orders from %q: %w", len(reqs), reqs[0].OrderID, err)
	}
	return c.outcomes(reqs), nil
}

// distinct returns the ids of reqs, sorted, and how often closing each failed
// before. Ids that no order can have are left out: the database must not be
// asked for them, as it may find something else.
func distinct(reqs []orderclose.CloseRequest) (ids []string, attempts map[string]int) {
	attempts = make(map[string]int, len(reqs))
	ids = make([]string, 0, len(reqs))
	for _, r := range reqs {
		if _, ok := attempts[r.OrderID]; ok || orderclose.ValidateID(r.OrderID) != nil {
			continue
		}
		attempts[r.OrderID] = r.Attempt
		ids = append(ids, r.OrderID)
	}
	slices.Sort(ids)
	return ids, attempts
}

// closing is one transaction of CloseOrders.
type closing struct {
	s        *Store
	tx       *gorm.DB
	path     orderclose.Path
	attempts map[string]int // by order id: how often closing it failed before

	now    time.Time            // the database's clock, read once
	orders map[string]lockedRow // what is there, by id
	won    []string             // ids that are closed here, sorted
}

// lockedRow is an order's row, locked until the transaction ends.
type lockedRow struct {
	category string
	due      time.Time
	version  int64 // before this transaction
	verdict  orderclose.Verdict
}

// run takes the steps of a close in the order that the package's doc gives. If
// nothing is to be closed it ends after the first.
func (c *closing) run(ids []string) error {
	for part := range slices.Chunk(ids, maxIn) {
		if err := c.lock(part); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
	}
	if len(c.won) == 0 {
		return c.readClock()
	}
	if err := c.mark(); err != nil {
		return fmt.Errorf("mark as closed: %w", err)
	}
	released, err := c.s.recordLines(c.tx, c.won, kindClose, c.now)
	if err != nil {
		return err
	}
	if err := c.receipts(); err != nil {
		return fmt.Errorf("write receipts: %w", err)
	}
	if err := c.events(released); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return c.s.moveStock(c.tx, released)
}

// lock locks the rows of ids and decides on each.
func (c *closing) lock(ids []string) error {
	d := c.s.dialect
	rows, err := c.tx.Raw("SELECT id, category, status, expire_at, version, ? FROM orders"+d.byID+
		" WHERE id IN ? ORDER BY id"+d.lock, d.now(), ids).Rows()
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			id  string
			row lockedRow
			st  Status
			now time.Time
		)
		if err := rows.Scan(&id, &row.category, &st, timeInto(&row.due), &row.version, timeInto(&now)); err != nil {
			return err
		}
		if c.now.IsZero() {
			c.now = now // of the first chunk: an older clock never closes early
		}
		row.verdict = verdict(st, row.due, c.now)
		c.orders[id] = row
		if row.verdict == orderclose.Closed {
			c.won = append(c.won, id)
		}
	}
	return rows.Err()
}

// readClock asks for the time if no row told it.
func (c *closing) readClock() (err error) {
	if c.now.IsZero() {
		c.now, err = c.s.now(c.tx)
	}
	return err
}

// mark is the compare-and-set. The rows are locked and were seen unpaid and due,
// so anything but all of them means that the lock did not hold.
func (c *closing) mark() error {
	now := c.s.dialect.time(c.now)
	for part := range slices.Chunk(c.won, maxIn) {
		// The plus keeps SQLite off the index on status; elsewhere it does nothing.
		res := c.tx.Exec("UPDATE orders"+c.s.dialect.byID+
			" SET status = ?, closed_at = ?, version = version + 1"+
			" WHERE id IN ? AND +status = ? AND expire_at <= ?",
			Closed, now, part, Unpaid, now)
		if err := wantRows(res, len(part)); err != nil {
			return err
		}
	}
	return nil
}

func (c *closing) receipts() error {
	d := c.s.dialect
	now := d.time(c.now)
	in := insert{into: "receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms)"}
	for _, id := range c.won {
		due := c.orders[id].due
		in.row(id, orderclose.Closed, d.time(due), now, c.path, c.attempts[id], c.now.Sub(due).Milliseconds())
	}
	return in.exec(c.tx)
}

// events puts one event for each closed order into the outbox, on its way to
// whoever wants to know.
func (c *closing) events(released map[string][]orderclose.Release) error {
	now := c.s.dialect.time(c.now)
	in := insert{into: "outbox_events (order_id, payload, created_at)"}
	for _, id := range c.won {
		row := c.orders[id]
		payload, err := orderclose.OrderClosed{
			OrderID: id, Category: row.category, Due: row.due, ClosedAt: c.now, Path: c.path,
			Attempts: c.attempts[id], Version: row.version + 1, Release: released[id],
		}.Encode()
		if err != nil {
			return err
		}
		in.row(id, string(payload), now)
	}
	return in.exec(c.tx)
}

// outcomes answers reqs. A repeat of an order that this transaction closed comes
// second to it.
func (c *closing) outcomes(reqs []orderclose.CloseRequest) []orderclose.Outcome {
	out := make([]orderclose.Outcome, len(reqs))
	seen := make(map[string]bool, len(reqs))
	for i, r := range reqs {
		out[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.NotFound, At: c.now}
		if row, ok := c.orders[r.OrderID]; ok {
			out[i].Verdict, out[i].Due = row.verdict, row.due
			if seen[r.OrderID] && row.verdict == orderclose.Closed {
				out[i].Verdict = orderclose.AlreadyClosed
			}
		}
		seen[r.OrderID] = true
	}
	return out
}
