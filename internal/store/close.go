package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"orderclose"
)

// maxIn is the longest IN list. MariaDB turns one of 1,000 or more into a join
// with a temporary table, and then rows are no longer locked in id order.
const maxIn = 999

// errNoDue is why an order cannot be closed whose due time is NULL, 0, or the zero
// date.
var errNoDue = errors.New("the order has no due time in the database: write one, and send it again")

// CloseOrders closes, in one transaction, the orders of reqs that are unpaid and
// due by the database's clock, gives their stock back and leaves a receipt of
// each, and an event in the outbox. It answers every request, in the order of reqs; of several for one order
// the first gets the verdict, and the others AlreadyClosed if that closed it.
//
// On an error nothing was closed, with one exception: if the connection broke
// during the commit and the database cannot be asked at once what became of it.
// Closing the same orders again, by the same Store, finds out: what that commit
// closed is Closed, once. An error that wraps orderclose.ErrUnavailable, or the context's
// error with it, is the database's. It wraps orderclose.ErrStoreDown as well, unless the
// call took as long as the database may take for an answer: then an order may have made
// the database hang. One that wraps
// orderclose.ErrContended means that some order's row was held by somebody else for
// too long. With that and with any other, the
// batch without the order at fault can succeed. Where the database can tell, those
// that are held are Contended instead, and the others closed.
func (s *Store) CloseOrders(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	began := time.Now()
	c, err := s.closeUnheld(ctx, path, reqs)
	if err != nil {
		if s.q.months != nil {
			s.q.months.forget() // a table may be gone
		}
		if errors.Is(err, orderclose.ErrUnavailable) && (s.hang == 0 || time.Since(began) < s.hang) {
			err = fmt.Errorf("%w: %w", err, orderclose.ErrStoreDown)
		}
		return nil, fmt.Errorf("close %d orders from %q: %w", len(reqs), reqs[0].OrderID, err)
	}
	return c.outcomes(reqs), nil
}

// closeUnheld closes the orders that nobody holds, and finds out who is held if a row
// was waited for in vain.
func (s *Store) closeUnheld(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) (*closing, error) {
	ids, attempts := s.distinct(reqs)
	places, err := s.places(ctx, reqs)
	if err != nil {
		return nil, err
	}
	without := s.stillHeld(ctx, ids, places)
	try := func() (*closing, error) {
		left := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return without[id] })
		c, err := s.tryClose(ctx, path, left, attempts, places)
		if errors.Is(err, errCommitLost) && ctx.Err() == nil {
			c, err = s.tryClose(ctx, path, left, attempts, places)
		}
		if err == nil {
			c.without = without
		}
		return c, err
	}
	c, err := try()
	for _, heldIn := range []func(*gorm.DB, *table, []string, map[string]bool) error{s.heldRows, s.heldSKUs} {
		if !errors.Is(err, orderclose.ErrContended) || ctx.Err() != nil {
			break
		}
		found := s.findHeld(ctx, ids, places, heldIn)
		if len(found) == 0 {
			continue
		}
		maps.Copy(found, without)
		without = found
		c, err = try()
	}
	return c, err
}

func (s *Store) tryClose(ctx context.Context, path orderclose.Path, ids []string, attempts map[string]int, places places) (*closing, error) {
	var c *closing
	err := s.transact(ctx, func(tx *gorm.DB) error {
		c = &closing{
			s: s, tx: tx, path: path, attempts: attempts, places: places, try: rand.Int64N(1<<62) + 1,
			orders: map[string]lockedRow{}, won: map[*table][]string{},
		}
		return c.run(ids)
	})
	switch {
	case errors.Is(err, errCommitLost):
		s.undecided.add(c.try, c.all)
	case err == nil:
		s.undecided.settle(ids)
	}
	return c, err
}

// distinct returns the ids of reqs, in the order of their index, and how often
// closing each failed before. Ids that no order can have are left out: the
// database must not be asked for them, as it may find something else.
func (s *Store) distinct(reqs []orderclose.CloseRequest) (ids []string, attempts map[string]int) {
	attempts = make(map[string]int, len(reqs))
	ids = make([]string, 0, len(reqs))
	for _, r := range reqs {
		if _, ok := attempts[r.OrderID]; ok || orderclose.ValidateID(r.OrderID) != nil {
			continue
		}
		if _, ok := s.q.m.ID.Arg(r.OrderID); !ok {
			continue
		}
		attempts[r.OrderID] = r.Attempt
		ids = append(ids, r.OrderID)
	}
	slices.SortFunc(ids, s.q.m.ID.Compare)
	return ids, attempts
}

// closing is one transaction of CloseOrders.
type closing struct {
	s        *Store
	tx       *gorm.DB
	path     orderclose.Path
	attempts map[string]int // by order id: how often closing it failed before
	places   places
	without  map[string]bool // asked for and left out: somebody holds them
	preview  bool            // only look, lock nothing
	try      int64           // names this transaction in its receipts

	now    time.Time            // the database's clock, read once
	orders map[string]lockedRow // what is there, by id
	won    map[*table][]string  // ids that are closed here, in the order of their index
	all    []string             // all of them, sorted
	open   map[string]*table    // where the open ones are, due or not; nil: nobody asks
}

// lockedRow is an order's row, locked until the transaction ends.
type lockedRow struct {
	category string
	due      time.Time
	version  int64 // before this transaction; -1: the table has none
	verdict  orderclose.Verdict
	at       time.Time // when it was closed, if a commit without an answer did it
}

// run takes the steps of a close in the order that the package's doc gives. If
// nothing is to be closed it ends after the first.
func (c *closing) run(ids []string) error {
	if err := c.find(ids); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := c.recognise(); err != nil {
		return fmt.Errorf("read the receipts of a commit without an answer: %w", err)
	}
	if len(c.won) == 0 {
		return c.readClock()
	}
	released := map[string][]orderclose.Release{}
	for _, t := range c.tables() {
		if err := c.mark(t); err != nil {
			return fmt.Errorf("mark as closed: %w", err)
		}
	}
	for _, t := range c.tables() {
		of, err := c.s.recordLinesOf(c.tx, t, c.won[t], kindClose, c.now)
		if err != nil {
			return err
		}
		maps.Copy(released, of)
		c.all = append(c.all, c.won[t]...)
	}
	slices.Sort(c.all)
	if err := c.receipts(); err != nil {
		return fmt.Errorf("write receipts: %w", err)
	}
	if err := c.events(released); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return c.s.moveStock(c.tx, released)
}

// tables are those in which something is to be closed, in one order for all.
func (c *closing) tables() []*table {
	return slices.SortedFunc(maps.Keys(c.won), func(a, b *table) int { return strings.Compare(a.name, b.name) })
}

// find locks each order in the first of its places that has it.
func (c *closing) find(ids []string) error {
	for n := 0; len(ids) > 0; n++ {
		in := map[*table][]string{}
		var order []*table
		for _, id := range ids {
			t := c.places.nth(id, n)
			if t == nil {
				continue
			}
			if in[t] == nil {
				order = append(order, t)
			}
			in[t] = append(in[t], id)
		}
		slices.SortFunc(order, func(a, b *table) int { return strings.Compare(a.name, b.name) })
		var missing []string
		for _, t := range order {
			for part := range slices.Chunk(in[t], maxIn) {
				if err := c.lock(t, part); err != nil {
					return err
				}
			}
			missing = append(missing, slices.DeleteFunc(in[t], func(id string) bool { _, found := c.orders[id]; return found })...)
		}
		ids = missing
	}
	return nil
}

// lock locks the rows of ids in a table and decides on each. What the database
// finds alike and is not asked for, by a collation, is left alone.
func (c *closing) lock(t *table, ids []string) error {
	query := t.lock
	if c.preview {
		query = t.look
	}
	rows, err := c.tx.Raw(query, c.s.q.lookArgs(c.s.q.args(ids))...).Rows()
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			id  string
			row lockedRow
			st  state
			due any
			now time.Time
		)
		if err := rows.Scan(&id, nullable(&row.category), &st, &due, &row.version, timeInto(&now)); err != nil {
			return err
		}
		if _, asked := c.attempts[id]; !asked {
			continue
		}
		if row.due, _, err = c.s.q.due.Decode(due); err != nil {
			return unavailable(c.tx.Statement.Context, err) // the mapping's fault
		}
		if c.now.IsZero() {
			c.now = now // of the first statement: an older clock never closes early
		}
		row.verdict = verdict(st, row.due, c.now)
		c.orders[id] = row
		if st == stateOpen && c.open != nil {
			c.open[id] = t
		}
		if row.verdict == orderclose.Closed {
			c.won[t] = append(c.won[t], id)
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
func (c *closing) mark(t *table) error {
	for part := range slices.Chunk(c.won[t], maxIn) {
		res := c.tx.Exec(t.mark, c.s.q.markArgs(c.s.q.args(part), c.now)...)
		if err := wantRows(res, len(part)); err != nil {
			return err
		}
	}
	return nil
}

func (c *closing) receipts() error {
	d := c.s.dialect
	now := d.time(c.now)
	in := insert{into: "receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms, try)", rows: len(c.all)}
	for _, id := range c.all {
		due := orderclose.CeilMilli(c.orders[id].due)
		in.row(id, orderclose.Closed, d.time(due), now, c.path, c.attempts[id], c.now.Sub(due).Milliseconds(), c.try)
	}
	return in.exec(c.tx)
}

// events puts one event for each closed order into the outbox, on its way to
// whoever wants to know.
func (c *closing) events(released map[string][]orderclose.Release) error {
	now := c.s.dialect.time(c.now)
	in := insert{into: "outbox_events (order_id, payload, created_at)", rows: len(c.all)}
	for _, id := range c.all {
		row := c.orders[id]
		payload, err := keep(orderclose.OrderClosed{
			Type: c.s.q.m.Event, OrderID: id, Category: row.category, Due: row.due, ClosedAt: c.now, Path: c.path,
			Attempts: c.attempts[id], Version: row.version + 1, Release: released[id],
		})
		if err != nil {
			return err
		}
		in.row(id, payload, now)
	}
	return in.exec(c.tx)
}

// outcomes answers reqs. A repeat of an order that this transaction closed comes
// second to it.
func (c *closing) outcomes(reqs []orderclose.CloseRequest) []orderclose.Outcome {
	out := make([]orderclose.Outcome, len(reqs))
	seen := make(map[string]bool, len(reqs))
	for i, r := range reqs {
		out[i] = c.outcome(r.OrderID)
		if seen[r.OrderID] && out[i].Verdict == orderclose.Closed {
			out[i].Verdict = orderclose.AlreadyClosed
		}
		seen[r.OrderID] = true
	}
	return out
}

// outcome is what was found of one order.
func (c *closing) outcome(id string) orderclose.Outcome {
	row, ok := c.orders[id]
	switch {
	case c.without[id]:
		return orderclose.Outcome{OrderID: id, Verdict: orderclose.Contended, At: c.now, Err: errHeld}
	case !ok:
		return orderclose.Outcome{OrderID: id, Verdict: orderclose.NotFound, At: c.now}
	}
	o := orderclose.Outcome{OrderID: id, Verdict: row.verdict, Due: row.due, At: c.now}
	if !row.at.IsZero() {
		o.At = row.at
	}
	if row.verdict == orderclose.Failed {
		o.Err = errNoDue
	}
	return o
}
