package store

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	bisect "github.com/orderclose/orderclose/internal/closing"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/wire"
)

// errNoDue says that an order cannot be closed because its due time is 0 or the zero date.
var errNoDue = because(orderclose.NoDueTime, "the order has no due time in the database: write a due time, and publish the order again")

// closing is one transaction of CloseOrders. Its goroutine owns it.
type closing struct {
	s          *Store
	tx         *gorm.DB
	path       orderclose.Path
	requests   map[string]orderclose.CloseRequest // by order id
	candidates candidates
	locks      locking
	stockFirst bool    // locks the stock before it writes, and leaves orders out
	turn       *hotRow // a row to wait for at the beginning; afterwards that of the next transaction. Nil: none
	stockTurn  bool    // has Store.stockTurn

	now       time.Time            // the database's clock, read once
	orders    map[string]lockedRow // the rows that were locked, or in a preview read, by order id
	contended map[string]bool      // requested orders that other transactions lock
	leftOut   map[string]bool      // those of them whose stock others lock
	paused    map[string]bool      // categories whose orders are not closed now
	won       map[*table][]string  // ids that this transaction closes, in the order of their index
	all       []string             // all ids of won, sorted
	open      map[string]*table    // the tables of unpaid orders, due or not, also excluded ones
	step      string               // the key under orders in topics.yaml of what write does now
	watched   bool                 // before and settle say what triggers made of the stock
	before    []quantities         // the sums of the rows of each Mapping.Stock that come back
	onClosed  []int64              // how many rows each statement of Mapping.OnClose changed, of up to maxIn orders
}

// locking is how a transaction reads the rows of orders.
type locking int

const (
	waitForLocks locking = iota // locks each row, after the other transactions that lock it
	skipLocked                  // locks each row that no other transaction locks; the others are contended
	lockNothing                 // reads each row
)

func (s *Store) newClosing(tx *gorm.DB, requests map[string]orderclose.CloseRequest, where candidates) *closing {
	return &closing{s: s, tx: tx, requests: requests, candidates: where, orders: map[string]lockedRow{}, contended: map[string]bool{}, leftOut: map[string]bool{},
		won: map[*table][]string{}, open: map[string]*table{}, before: make([]quantities, len(s.q.m.Stock))}
}

// lockedRow is the row of an order, locked until the transaction ends.
type lockedRow struct {
	category string
	due      time.Time
	version  int64                      // before this transaction; -1: the table has no version
	columns  map[string]json.RawMessage // of Mapping.EventColumns
	verdict  orderclose.Verdict
	err      error     // of the verdict Failed; nil: errNoDue
	at       time.Time // the clock of the transaction that read the row; zero: that of the first
}

// run takes the steps of a close in the order of the package comment. If no order is to be
// closed, it ends after the first step.
func (c *closing) run(ids []string) error {
	if err := c.awaitTurn(); err != nil {
		return fmt.Errorf("lock a row of the stock: %w", err)
	}
	if err := c.readPauses(); err != nil {
		return err
	}
	if err := c.readDelays(); err != nil {
		return err
	}
	if err := c.lockOrders(ids); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if c.stockFirst {
		if err := c.lockStockFirst(); err != nil {
			return fmt.Errorf("lock the stock: %w", err)
		}
	}
	if len(c.won) == 0 {
		return c.readClock()
	}
	return c.write()
}

// add takes the results of a later transaction for some of the orders.
func (c *closing) add(later *closing) {
	if c.now.IsZero() {
		c.now = later.now
	}
	c.all = append(c.all, later.all...)
	for id, row := range later.orders {
		if row.at.IsZero() {
			row.at = later.now
		}
		c.orders[id] = row
		delete(c.contended, id)
	}
	maps.Copy(c.contended, later.contended)
}

// write makes all changes of a close.
func (c *closing) write() error {
	returned, moved := returns{}, c.s.newMoves()
	c.step = "status"
	for _, t := range sorted(c.won) {
		if err := c.mark(t); err != nil {
			return fmt.Errorf("mark as closed: %w", err)
		}
	}
	c.step = "items"
	for _, t := range sorted(c.won) {
		if err := c.s.returnLines(c.tx, t, c.won[t], returned, moved); err != nil {
			return err
		}
		c.all = append(c.all, c.won[t]...)
	}
	slices.Sort(c.all)
	c.step = "table"
	if err := c.receipts(returned); err != nil { //mutant:receipt-without-lines
		return fmt.Errorf("write receipts: %w", err)
	}
	if err := c.onClose(); err != nil {
		return err
	}
	c.step = "event"
	if err := c.events(returned); err != nil { //mutant:close-without-event
		return fmt.Errorf("write events: %w", err)
	}
	c.step = "stock"
	if err := c.moveStock(moved); err != nil {
		return err
	}
	c.step = "status"
	return c.settle(moved)
}

// sorted returns the tables of orders, always in the same order.
func sorted(orders map[*table][]string) []*table {
	return slices.SortedFunc(maps.Keys(orders), func(a, b *table) int { return strings.Compare(a.name, b.name) })
}

// lockOrders reads each order in the first of its tables that has it, and locks it as c.locks says.
func (c *closing) lockOrders(ids []string) error {
	for n := 0; len(ids) > 0; n++ {
		in := map[*table][]string{}
		for _, id := range ids {
			if t := c.candidates.nth(id, n); t != nil {
				in[t] = append(in[t], id)
			}
		}
		var missing []string
		for _, t := range sorted(in) {
			for part := range slices.Chunk(in[t], maxIn) {
				if err := searched(part, func(ids []string) error { return c.lock(t, ids) }); err != nil {
					return err
				}
				absent, err := c.notInTable(t, part)
				if err != nil {
					return err
				}
				missing = append(missing, absent...)
			}
		}
		ids = missing
	}
	return nil
}

// notInTable returns the ids that have no row in a table. An id whose row exists, but was skipped because
// of a lock, is contended. The next table does not have its row either.
func (c *closing) notInTable(t *table, ids []string) ([]string, error) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, found := c.orders[id]; return found })
	if len(ids) == 0 || c.locks != skipLocked {
		return ids, nil
	}
	locked, err := c.s.existing(c.tx, t, ids)
	return slices.DeleteFunc(ids, func(id string) bool { // the collation may also match another order of the batch
		if slices.Contains(locked, id) {
			c.contended[id] = true
		}
		return c.contended[id]
	}), err
}

// lock reads the rows of ids in a table, locks them as c.locks says, and decides on each. It leaves out
// rows that were not requested, which the database matches by the collation.
func (c *closing) lock(t *table, ids []string) error {
	query := map[locking]string{waitForLocks: t.lock, skipLocked: t.lockFree, lockNothing: t.read}[c.locks]
	columns := eventColumns{names: c.s.q.m.EventColumns}
	return eachRow(c.tx, query, append(c.s.q.stateArgs(), c.s.q.d.now(), c.s.q.args(ids)), func(rows *sql.Rows) (err error) {
		var (
			id  string
			row lockedRow
			st  state
			due any
			now time.Time
		)
		into := append([]any{&id, nullable(&row.category), &st, &due, &row.version, timeInto(&now)}, columns.into()...)
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if _, asked := c.requests[id]; !asked {
			return nil
		}
		if row.columns, err = columns.read(rows); err != nil {
			return err
		}
		if row.due, err = c.s.q.decodeDue(due); err != nil {
			return unavailable(c.tx.Statement.Context, err) // the mapping is wrong, not an order
		}
		if c.now.IsZero() {
			c.now = now // the clock of the first statement: an older clock never closes early
		}
		row.verdict = verdict(st, row.due, c.s.q.m.NotBefore, c.now)
		if row.verdict == orderclose.Closed && c.paused[row.category] {
			row.verdict = orderclose.Paused
		}
		c.orders[id] = row
		if st == stateOpen || st == stateExcluded {
			c.open[id] = t
		}
		if row.verdict == orderclose.Closed {
			c.won[t] = append(c.won[t], id)
		}
		return nil
	})
}

// readClock reads the clock if no row returned it.
func (c *closing) readClock() (err error) {
	if c.now.IsZero() {
		c.now, err = c.s.now(c.tx)
	}
	return err
}

// mark is the compare-and-set. The rows are locked, and were read as unpaid and due, so
// another count of changed rows means that the lock did not hold. settle looks later at what triggers did.
func (c *closing) mark(t *table) error {
	for part := range slices.Chunk(c.won[t], maxIn) {
		if err := own(c.tx).change(len(part), t.mark, c.s.q.markArgs(c.s.q.args(part), c.now)...); err != nil {
			return err
		}
	}
	return nil
}

// hasStatus returns an error if orders do not have a status that was written to them: a trigger of the shop has set another one, and counts of
// changed rows do not show that. query is table.has, or table.count: then triggers says whether a table that a close writes has a trigger.
func (s *Store) hasStatus(tx lent, query string, ids []any, status mapping.Value) (triggers bool, err error) {
	counts, err := rowsOf(tx, query, []any{ids, status.Arg()}, func(n *[2]int) []any { return []any{&n[0], &n[1]} })
	if n := first(counts); err == nil && n[0] != len(ids) { //mutant:kept-status-closed
		err = because(orderclose.RefusedByTrigger, "%d of %d orders do not have the status %v after it was written: "+
			"a trigger has set another one; let the trigger raise an error, or let the shop change the order before", len(ids)-n[0], len(ids), status)
	}
	return first(counts)[1] > 0, err
}

// settled is hasStatus at the end of a transaction of the store. Deferred triggers run now, and not in the commit.
func (s *Store) settled(tx lent, t *table, ids []any, status mapping.Value) (triggers bool, err error) {
	triggers, err = s.hasStatus(tx, t.count, ids, status)
	if err != nil || !triggers || s.dialect.settle == "" {
		return triggers, err
	}
	if _, err = tx.exec(s.dialect.settle); err == nil {
		_, err = s.hasStatus(tx, t.has, ids, status)
	}
	return true, err
}

// errWatch says that a table has got a trigger, which may change what comes back to the stock.
var errWatch = fmt.Errorf("%w: a table that a close writes has got a trigger", orderclose.ErrContended)

// settle is the last step of a close: it looks at what triggers have made of the statuses, and of the stock.
func (c *closing) settle(moved moves) error {
	triggers := false
	for _, t := range sorted(c.won) {
		for part := range slices.Chunk(c.won[t], maxIn) {
			has, err := c.s.settled(own(c.tx), t, c.s.q.args(part), c.s.q.m.Status.To)
			if err != nil {
				return err
			}
			triggers = triggers || has
		}
	}
	switch c.s.watch.Store(triggers); {
	case triggers && !c.watched:
		return errWatch
	case !c.watched:
		return nil
	}
	for i, stock := range c.s.q.m.Stock {
		want, has := c.before[i], quantities{}
		for _, quantity := range moved[i] {
			want.available.Int64 += quantity
			want.reserved.Int64 -= quantity
		}
		for part := range slices.Chunk(slices.Sorted(maps.Keys(moved[i])), maxIn) {
			rows, err := c.s.stockRows(c.tx, stock, part, "")
			if err != nil {
				return err
			}
			has = has.plus(rows)
		}
		if stock.Available != "" && has.available != want.available || stock.Reserved != "" && has.reserved != want.reserved { //mutant:capped-stock-lost
			return because(orderclose.RefusedByTrigger, "the stock in table %s of %d SKUs is %d, with %d reserved, after it came back, and should be %d and %d: "+
				"a trigger has changed it; let the trigger raise an error, or leave the stock as a close writes it",
				stock.Table, len(moved[i]), has.available.Int64, has.reserved.Int64, want.available.Int64, want.reserved.Int64)
		}
	}
	return nil
}

// receipts writes the receipt of each closed order. Its key ensures that an order is closed, and its stock returned, once.
func (c *closing) receipts(returned returns) error {
	d := c.s.dialect
	now := d.time(c.now)
	in := insert{into: "receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms, returned)"}
	for _, id := range c.all {
		lines, _ := json.Marshal(returned[id]) // a map of numbers always has a form in JSON
		due := orderclose.CeilMilli(c.orders[id].due)
		in.row(id, orderclose.Closed, d.time(due), now, c.path, c.requests[id].Attempt, c.now.Sub(due).Milliseconds(), string(lines))
	}
	return in.exec(c.tx, c.s.dialect)
}

// events writes one event for each closed order into the outbox.
func (c *closing) events(returned returns) error {
	now := c.s.dialect.time(c.now)
	in := insert{into: "outbox_events (order_id, payload, created_at)"}
	for _, id := range c.all {
		row := c.orders[id]
		payload, err := encodeKept(orderclose.OrderClosed{
			Type: c.s.q.m.Event, OrderID: id, Category: row.category, Due: row.due, ClosedAt: c.now, Path: c.path,
			Attempts: c.requests[id].Attempt, Version: row.version + 1, Columns: row.columns,
		}, returned[id], c.requests[id].Traceparent)
		if err != nil {
			return err
		}
		in.row(id, payload, now)
	}
	return in.exec(c.tx, c.s.dialect)
}

// outcomes returns the outcomes of reqs. A repeated request of an order that this
// transaction closed gets AlreadyClosed.
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

// outcome returns the outcome of one order.
func (c *closing) outcome(id string) orderclose.Outcome {
	row, ok := c.orders[id]
	switch {
	case c.contended[id]:
		return orderclose.Outcome{OrderID: id, Verdict: orderclose.Contended, At: c.now, Err: errRowLocked}
	case !ok:
		return orderclose.Outcome{OrderID: id, Verdict: orderclose.NotFound, At: c.now, Err: notFound(id)}
	}
	o := orderclose.Outcome{OrderID: id, Verdict: row.verdict, Due: row.due, At: c.now}
	if !row.at.IsZero() {
		o.At = row.at
	}
	switch row.verdict {
	case orderclose.Failed:
		o.Err = cmp.Or(row.err, errNoDue)
		o.Cause = bisect.CauseOf(o.Err)
	case orderclose.Paused:
		o.Err = wire.ErrPausedCategory
	}
	return o
}
