package webhook

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// keepSent is how long events that were sent are kept.
	keepSent = 7 * 24 * time.Hour
	// takeBatch is how many events are taken from outbox_events in a transaction.
	takeBatch = 200
	// An event becomes a dead letter when three things are true: its first attempt is giveUpAfter ago, it had giveUpTries attempts, and the
	// receiver has accepted another event since the first attempt. If the receiver accepts no event at all, the event is not the cause.
	// The schedule of retries that Standard Webhooks recommend ends after three days.
	giveUpAfter = 72 * time.Hour
	giveUpTries = 10
	// countMost is how many events are counted at most.
	countMost = 10_000
)

// table is the tables webhook_events and webhook_state.
type table struct{ *store.Store }

// event is an event of webhook_events that is being sent.
type event struct {
	id       int64
	order    string
	body     []byte // the CloudEvent
	attempts int    // with the one that runs
	first    int64  // when the first attempt began, in unix milliseconds
}

// outcome is what became of an attempt.
type outcome struct {
	event
	err    error         // nil: it was accepted
	wait   time.Duration // until the next attempt
	hold   time.Duration // for how long the receiver wants no request at all
	unsent bool          // no attempt can succeed
}

// step is what one transaction has done.
type step struct {
	events []event   // to be sent now
	taken  int       // events from outbox_events
	others int       // rows of outbox_events that another program takes
	dead   []outcome // that were given up
}

// any reports whether a step has something to do, beside outcomes. It costs two statements by index.
func (t table) any(ctx context.Context) (bool, error) {
	now, err := t.Now(ctx)
	if err != nil {
		return false, err
	}
	var first, next sql.NullInt64
	err = t.DB().QueryRowContext(ctx, "SELECT (SELECT id FROM outbox_events ORDER BY id LIMIT 1), "+
		"(SELECT next_ms FROM webhook_events WHERE next_ms <= ? ORDER BY next_ms LIMIT 1)", now.UnixMilli()).Scan(&first, &next)
	return first.Valid || next.Valid, err
}

// step marks what became of attempts, takes new events, and chooses up to free events to be sent, the first one of each order that is
// not sent yet. Nobody else chooses these before lease has passed. A step that failed may be repeated with the same outcomes.
func (t table) step(ctx context.Context, done []outcome, free int, lease time.Duration) (s step, err error) {
	err = t.locked(ctx, func(c change) error {
		s = step{}
		for _, o := range done {
			if err := c.mark(&s, o); err != nil {
				return err
			}
		}
		if err := c.take(&s); err != nil || free <= 0 {
			return err
		}
		return c.choose(&s, free, lease)
	})
	return s, err
}

// change is a transaction of which there is one at a time, so that events of an order are taken and chosen in their order.
type change struct {
	store.Tx
	ctx context.Context
	now int64 // by the database's clock
}

func (t table) locked(ctx context.Context, do func(c change) error) error {
	now, err := t.Now(ctx)
	if err != nil {
		return err
	}
	return t.InTx(ctx, func(tx store.Tx) error {
		var id int
		if err := tx.QueryRowContext(ctx, "SELECT id FROM webhook_state WHERE id = 1"+tx.ForUpdate()).Scan(&id); err != nil {
			return err
		}
		return do(change{tx, ctx, now.UnixMilli()})
	})
}

// exec executes a statement, and returns how many rows it has changed.
func (c change) exec(query string, args ...any) (int64, error) {
	r, err := c.ExecContext(c.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// mark stores an outcome. It changes nothing if the lease of the attempt has passed and another process has begun the next attempt.
func (c change) mark(s *step, o outcome) error {
	var next, ended any
	text, dead := o.text(), 0
	over, err := c.over(o)
	switch {
	case err != nil:
		return err
	case over:
		ended, dead = c.now, 1
	case o.err == nil:
		ended = c.now
	default:
		next = c.now + o.wait.Milliseconds()
	}
	n, err := c.exec("UPDATE webhook_events SET next_ms = ?, done_ms = ?, dead = ?, error = ? WHERE id = ?"+
		" AND attempts = ? AND next_ms IS NOT NULL", next, ended, dead, text, o.id, o.attempts) //mutant:webhook-lease-ignored
	if over && n > 0 {
		s.dead = append(s.dead, o)
	}
	return err
}

// over reports whether an event is given up.
func (c change) over(o outcome) (bool, error) {
	if o.err == nil || o.unsent || o.attempts < giveUpTries || c.now-o.first < giveUpAfter.Milliseconds() {
		return o.unsent, nil
	}
	var accepted int
	err := c.QueryRowContext(c.ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM webhook_events WHERE dead = 0 AND done_ms > ? LIMIT 1) AS a", o.first).Scan(&accepted)
	return accepted > 0, err //mutant:webhook-outage-gives-up
}

// take moves events from outbox_events.
func (c change) take(s *step) error {
	rows, others, err := c.TakeEvents(takeBatch)
	if s.taken, s.others = len(rows), others; err == nil && others > 0 {
		_, err = c.exec("UPDATE webhook_state SET other_reader_ms = ? WHERE id = 1", c.now)
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	var args []any
	for _, row := range rows {
		args = append(args, row.OrderID, string(row.Payload), c.now, c.now)
	}
	_, err = c.exec("INSERT INTO webhook_events (order_id, payload, taken_ms, next_ms) VALUES "+list("(?, ?, ?, ?)", len(rows)), args...)
	return err
}

// choose chooses events whose time has come, and leases them.
func (c change) choose(s *step, limit int, lease time.Duration) error {
	ids := []any{c.now + lease.Milliseconds(), c.now}
	err := each(c.ctx, c, "SELECT id, order_id, payload, attempts + 1, COALESCE(first_ms, ?) FROM webhook_events AS e WHERE next_ms <= ?"+
		" AND NOT EXISTS (SELECT 1 FROM webhook_events AS p WHERE p.order_id = e.order_id AND p.next_ms IS NOT NULL AND p.id < e.id)"+ //mutant:webhook-order-lost
		" ORDER BY next_ms, id LIMIT ?", []any{c.now, c.now, limit}, func(rows *sql.Rows) error {
		var e event
		err := rows.Scan(&e.id, &e.order, &e.body, &e.attempts, &e.first)
		s.events, ids = append(s.events, e), append(ids, e.id)
		return err
	})
	if err == nil && len(s.events) > 0 {
		_, err = c.exec("UPDATE webhook_events SET attempts = attempts + 1, next_ms = ?, first_ms = COALESCE(first_ms, ?) WHERE id IN ("+
			list("?", len(s.events))+")", ids...)
	}
	return err
}

func list(of string, n int) string { return strings.TrimSuffix(strings.Repeat(of+", ", n), ", ") }

// each reads the rows of a query.
func each(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// forget deletes the events that were sent more than keepSent ago, those of a minute in a transaction. It deletes no others.
func (t table) forget(ctx context.Context) error {
	for more := true; more; {
		err := t.locked(ctx, func(c change) error {
			until := c.now - keepSent.Milliseconds()
			var oldest sql.NullInt64
			err := c.QueryRowContext(ctx, "SELECT MIN(done_ms) FROM webhook_events WHERE dead = 0 AND done_ms < ?", until).Scan(&oldest)
			if more = oldest.Valid; err == nil && more {
				_, err = c.exec("DELETE FROM webhook_events WHERE dead = 0 AND done_ms < ?", min(until, oldest.Int64+time.Minute.Milliseconds()))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// state is what waits, and what was given up.
type state struct {
	Waiting     int           // events, counted up to countMost in each of the two tables
	Oldest      time.Duration // the age of the oldest of them
	LastError   string        // of one that failed; "": none has
	Dead        int           // dead letters, counted up to countMost
	Letters     []deadLetter  // the first of them
	OtherReader time.Duration // since another program was seen that takes rows of outbox_events; 0: none was
}

// deadLetter is an event that was given up: its order, and the error of the last attempt.
type deadLetter struct{ Order, Error string }

func (t table) state(ctx context.Context) (s state, err error) {
	now, err := t.Now(ctx)
	if err != nil {
		return s, err
	}
	left, err := t.Backlog(ctx, wire.EventOutbox)
	if err != nil {
		return s, err
	}
	var oldest sql.NullInt64
	var failed sql.NullString
	var other int64
	err = t.DB().QueryRowContext(ctx, "SELECT COUNT(*), MIN(taken_ms), "+
		"(SELECT error FROM webhook_events WHERE next_ms IS NOT NULL AND error <> '' ORDER BY next_ms DESC LIMIT 1), "+
		"(SELECT COUNT(*) FROM (SELECT 1 FROM webhook_events WHERE dead = 1 LIMIT ?) AS d), (SELECT other_reader_ms FROM webhook_state WHERE id = 1) "+
		"FROM (SELECT taken_ms FROM webhook_events WHERE next_ms IS NOT NULL ORDER BY next_ms LIMIT ?) AS w", countMost, countMost).
		Scan(&s.Waiting, &oldest, &failed, &s.Dead, &other)
	since := func(ms int64) time.Duration { return max(now.Sub(time.UnixMilli(ms)), time.Millisecond) }
	if s.Waiting, s.Oldest, s.LastError = s.Waiting+left.Rows, left.Oldest, failed.String; oldest.Valid {
		s.Oldest = max(s.Oldest, since(oldest.Int64))
	}
	if other > 0 {
		s.OtherReader = since(other)
	}
	if err == nil && s.Dead > 0 {
		s.Letters, err = t.letters(ctx, 3)
	}
	return s, err
}

// letters returns the first dead letters.
func (t table) letters(ctx context.Context, limit int) (all []deadLetter, err error) {
	err = each(ctx, t.DB(), "SELECT order_id, error FROM webhook_events WHERE dead = 1 ORDER BY done_ms, id LIMIT ?", []any{limit},
		func(rows *sql.Rows) error {
			all = append(all, deadLetter{})
			return rows.Scan(&all[len(all)-1].Order, &all[len(all)-1].Error)
		})
	return all, err
}
