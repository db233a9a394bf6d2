package webhook

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// takeBatch is how many events are taken from outbox_events in a transaction.
	takeBatch = 200
	// countMost is how many events are counted at most.
	countMost = 10_000
	// clockBack is how far the database's clock must be behind the last step for the times in the table to be moved.
	clockBack = time.Second
)

// maxEvent is the size of the largest event that is sent, in bytes. A larger one stays whole in orderclose_webhook_events until a person acts.
var maxEvent = strconv.Itoa(wire.MaxRecordBytes)

// table is the tables orderclose_webhook_events and orderclose_webhook_state. All events of an order have the same next_ms: 0
// if its first event was never tried, else the time of its next attempt, or of the end of the attempt that runs.
type table struct{ *store.Store }

// event is an event of orderclose_webhook_events that is being sent.
type event struct {
	id       int64
	order    string
	body     []byte // the CloudEvent; nil: it is too large
	size     int    // of the CloudEvent, in bytes
	attempts int    // with the one that runs
	lane     int    // first or again
}

// outcome is what became of an attempt.
type outcome struct {
	event
	err   error         // nil: it was accepted
	wait  time.Duration // until the next attempt, at least
	works bool          // the receiver accepts events, or refuses this one
	fails bool          // the receiver may accept no event
	took  time.Duration // until the answer
}

// step is what one transaction has done.
type step struct {
	events []event // to be sent now
	taken  int     // events from outbox_events
	more   bool    // outbox_events may have more events
	others int     // rows of outbox_events that another program takes
}

// any reports whether a step has something to do, beside outcomes. It costs two statements by index.
func (t table) any(ctx context.Context) (bool, error) {
	now, err := t.Now(ctx)
	if err != nil {
		return false, err
	}
	var first, next sql.NullInt64
	var last int64
	err = t.DB().QueryRowContext(ctx, "SELECT (SELECT id FROM outbox_events ORDER BY id LIMIT 1), "+
		"(SELECT next_ms FROM orderclose_webhook_events WHERE next_ms <= ? ORDER BY next_ms LIMIT 1), (SELECT last_ms FROM orderclose_webhook_state WHERE id = 1)",
		now.UnixMilli()).Scan(&first, &next, &last)
	return first.Valid || next.Valid || last-now.UnixMilli() > clockBack.Milliseconds(), err
}

// step marks what became of attempts, takes new events, and chooses up to first events that were never tried and again others to be sent, each
// the first of its order. Nobody else chooses these before lease has passed. A step that failed may be repeated with the same outcomes.
func (t table) step(ctx context.Context, done []outcome, first, again int, lease time.Duration) (s step, err error) {
	err = t.InTx(ctx, func(tx store.Tx) error {
		s = step{}
		c, err := begin(ctx, tx)
		if err == nil {
			err = c.mark(done)
		}
		if err == nil {
			err = c.take(&s)
		}
		if err == nil {
			err = c.choose(&s, first, again, lease)
		}
		return err
	})
	return s, err
}

// change is a transaction of which there is one at a time, so that events of an order are taken and chosen in their order.
type change struct {
	store.Tx
	ctx context.Context
	now int64 // by the database's clock
}

// begin waits for all other changes. If the clock was set back since the last one, what was left of each wait then is left of it now.
func begin(ctx context.Context, tx store.Tx) (c change, err error) {
	var last int64
	if err := tx.QueryRowContext(ctx, "SELECT last_ms FROM orderclose_webhook_state WHERE id = 1"+tx.ForUpdate()).Scan(&last); err != nil {
		return c, err
	}
	now, err := tx.Now()
	if err != nil {
		return c, err
	}
	c = change{tx, ctx, now.UnixMilli()}
	if back := last - c.now; back > clockBack.Milliseconds() { //mutant:webhook-clock-back
		_, err = c.exec("UPDATE orderclose_webhook_events SET next_ms = CASE WHEN next_ms > ? THEN next_ms - ? WHEN next_ms > ? THEN ? ELSE next_ms END,"+
			" taken_ms = CASE WHEN taken_ms > ? THEN ? ELSE taken_ms END", last, back, c.now, c.now, c.now, c.now)
	}
	if err == nil {
		_, err = c.exec("UPDATE orderclose_webhook_state SET last_ms = ?, other_reader_ms = CASE WHEN other_reader_ms > ? THEN ? ELSE other_reader_ms END"+
			" WHERE id = 1", c.now, c.now, c.now)
	}
	return c, err
}

// exec executes a statement, and returns how many rows it has changed.
func (c change) exec(query string, args ...any) (int64, error) {
	return orderclose.SQL(c).Exec(c.ctx, query, args...)
}

// mark deletes what was accepted, and sets the next attempt of the other orders. It changes nothing for an attempt whose lease has passed,
// if another process has begun the next attempt, nor for another event that has got the same id: a standby that takes over may lack the
// last rows, and gives their ids again.
func (c change) mark(done []outcome) error {
	attempt := " WHERE id = ? AND attempts = ? AND (payload = ? OR OCTET_LENGTH(payload) > " + maxEvent + ")" //mutant:webhook-lease-ignored
	var sent []any
	for _, o := range done {
		if o.err == nil {
			n, err := c.exec("DELETE FROM orderclose_webhook_events"+attempt, o.id, o.attempts, string(o.body))
			if err != nil {
				return err
			}
			if n > 0 {
				sent = append(sent, o.order)
			}
			continue
		}
		next := c.now + o.wait.Milliseconds()
		n, err := c.exec("UPDATE orderclose_webhook_events SET next_ms = ?, error = ?"+attempt, next, o.text(), o.id, o.attempts, string(o.body))
		if err == nil && n > 0 {
			_, err = c.exec("UPDATE orderclose_webhook_events SET next_ms = ? WHERE order_id = ?", next, o.order) //mutant:webhook-order-lost
		}
		if err != nil {
			return err
		}
	}
	if len(sent) == 0 {
		return nil
	}
	_, err := c.exec("UPDATE orderclose_webhook_events SET next_ms = 0 WHERE order_id IN ("+list("?", len(sent))+")", sent...)
	return err
}

// take moves events from outbox_events.
func (c change) take(s *step) (err error) {
	if s.taken, s.more, s.others, err = c.TakeEvents(takeBatch, c.keep); err == nil && s.others > 0 {
		_, err = c.exec("UPDATE orderclose_webhook_state SET other_reader_ms = ? WHERE id = 1", c.now)
	}
	return err
}

// keep adds events to orderclose_webhook_events. The database copies those that are too large, whole.
func (c change) keep(rows []wire.OutboxRow) error {
	var orders []any
	for _, row := range rows {
		orders = append(orders, row.OrderID)
	}
	next := map[string]int64{}
	err := orderclose.SQL(c).Query(c.ctx, "SELECT order_id, MAX(next_ms) FROM orderclose_webhook_events WHERE order_id IN ("+list("?", len(orders))+")"+
		" GROUP BY order_id", orders, func(scan func(...any) error) error {
		var order string
		var at int64
		err := scan(&order, &at)
		next[order] = at
		return err
	})
	if err != nil {
		return err
	}
	for len(rows) > 0 && err == nil {
		fitting := slices.IndexFunc(rows, func(r wire.OutboxRow) bool { return r.TooLarge > 0 }) // the rows before one that is too large
		if fitting == 0 {
			_, err = c.exec(fmt.Sprintf("INSERT INTO orderclose_webhook_events (order_id, payload, taken_ms, next_ms)"+
				" SELECT order_id, payload, %d, %d FROM outbox_events WHERE id = %d", c.now, next[rows[0].OrderID], rows[0].ID))
			rows = rows[1:]
			continue
		}
		if fitting < 0 {
			fitting = len(rows)
		}
		var args []any
		for _, row := range rows[:fitting] {
			args = append(args, row.OrderID, string(row.Payload), c.now, next[row.OrderID])
		}
		_, err = c.exec("INSERT INTO orderclose_webhook_events (order_id, payload, taken_ms, next_ms) VALUES "+list("(?, ?, ?, ?)", fitting), args...)
		rows = rows[fitting:]
	}
	return err
}

// choose chooses the first event of orders whose time has come, and leases the orders. Of orders that were never tried the newest go first, so
// that they do not wait behind those that the receiver refuses. The condition is not "= 0", for which a server may read all rows by id.
func (c change) choose(s *step, first, again int, lease time.Duration) error {
	var ids, orders []any
	err := orderclose.SQL(c).Query(c.ctx, "SELECT e.id, e.order_id, CASE WHEN OCTET_LENGTH(e.payload) <= "+maxEvent+" THEN e.payload END,"+
		" OCTET_LENGTH(e.payload), e.attempts + 1, o.lane FROM (SELECT MIN(w.id) AS id, MAX(d.lane) AS lane FROM"+
		" (SELECT order_id, 0 AS lane FROM (SELECT order_id FROM orderclose_webhook_events WHERE next_ms < 1 ORDER BY next_ms DESC, id DESC LIMIT ?) AS f"+
		" UNION SELECT order_id, 1 FROM (SELECT order_id FROM orderclose_webhook_events WHERE next_ms BETWEEN 1 AND ? ORDER BY next_ms, id LIMIT ?) AS a) AS d"+
		" JOIN orderclose_webhook_events AS w ON w.order_id = d.order_id GROUP BY w.order_id) AS o JOIN orderclose_webhook_events AS e ON e.id = o.id",
		[]any{max(first, 0), c.now, max(again, 0)}, func(scan func(...any) error) error {
			var e event
			err := scan(&e.id, &e.order, &e.body, &e.size, &e.attempts, &e.lane) //mutant:webhook-refused-delay-others
			s.events, ids, orders = append(s.events, e), append(ids, e.id), append(orders, e.order)
			return err
		})
	if err != nil || len(orders) == 0 {
		return err
	}
	_, err = c.exec("UPDATE orderclose_webhook_events SET next_ms = ?, attempts = attempts + CASE WHEN id IN ("+list("?", len(ids))+") THEN 1 ELSE 0 END"+
		" WHERE order_id IN ("+list("?", len(orders))+")", slices.Concat([]any{c.now + lease.Milliseconds()}, ids, orders)...)
	return err
}

func list(of string, n int) string { return strings.TrimSuffix(strings.Repeat(of+", ", n), ", ") }

// state is what waits, and for what. Events are counted up to countMost in outbox_events, never tried, and tried.
type state struct {
	Waiting     int           // all
	Refused     int           // of them, those that were tried and not accepted
	Behind      int           // of them, those that wait for an earlier event of their order
	Oldest      time.Duration // the age of the oldest of all
	First       []string      // the oldest that were not accepted: order and error
	OtherReader time.Duration // since another program was seen that takes rows of outbox_events; 0: none was
}

func (t table) state(ctx context.Context) (s state, err error) {
	now, err := t.Now(ctx)
	if err != nil {
		return s, err
	}
	left, err := t.Backlog(ctx, wire.EventOutbox)
	if err != nil {
		return s, err
	}
	const tried = "(SELECT id, order_id, attempts, error FROM orderclose_webhook_events WHERE next_ms > 0 ORDER BY next_ms LIMIT ?) AS t"
	var oldest sql.NullInt64
	var other int64
	err = t.DB().QueryRowContext(ctx, "SELECT (SELECT taken_ms FROM orderclose_webhook_events ORDER BY id LIMIT 1),"+
		" (SELECT COUNT(*) FROM (SELECT 1 FROM orderclose_webhook_events WHERE next_ms < 1 LIMIT ?) AS f) + COUNT(*),"+
		" COALESCE(SUM(CASE WHEN error <> '' THEN 1 ELSE 0 END), 0), COALESCE(SUM(CASE WHEN attempts = 0 THEN 1 ELSE 0 END), 0),"+
		" (SELECT other_reader_ms FROM orderclose_webhook_state WHERE id = 1) FROM "+tried, countMost, countMost).
		Scan(&oldest, &s.Waiting, &s.Refused, &s.Behind, &other)
	since := func(ms int64) time.Duration { return max(now.Sub(time.UnixMilli(ms)), time.Millisecond) }
	if s.Waiting, s.Oldest = s.Waiting+left.Rows, left.Oldest; oldest.Valid {
		s.Oldest = max(s.Oldest, since(oldest.Int64))
	}
	if other > 0 {
		s.OtherReader = since(other)
	}
	if err == nil && s.Refused > 0 {
		err = orderclose.SQL(t.DB()).Query(ctx, "SELECT order_id, error FROM "+tried+" WHERE error <> '' ORDER BY id LIMIT 3", []any{countMost},
			func(scan func(...any) error) error {
				var order, why string
				err := scan(&order, &why)
				s.First = append(s.First, fmt.Sprintf("order %s: %s", text.OneLine(order, orderclose.MaxIDBytes), why))
				return err
			})
	}
	return s, err
}
