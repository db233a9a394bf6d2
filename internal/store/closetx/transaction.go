package closetx

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// closing is one transaction of CloseOrders.
type closing struct {
	Rows
	stockFirst bool    // locks the stock before it writes, and leaves orders out
	entries    bool    // locks entries of indexes before it writes, and leaves orders out; then the UPDATE of the orders waits for their triggers
	alone      bool    // says what one order waits for, which a batch or another close has waited for in vain
	turn       *hotRow // a row to wait for at the beginning; afterwards that of the next transaction. Nil: none
	stockTurn  bool    // has Closer.stockTurn

	leftOut  map[string]bool         // contended orders whose stock others lock
	all      []string                // all ids of won, sorted
	step     string                  // the key under orders in topics.yaml of what write does now
	watched  bool                    // before and settle say what triggers made of the stock
	before   []map[string]quantities // the rows of each Mapping.Stock that come back
	onClosed []int64                 // how many rows each statement of Mapping.OnClose changed, of up to maxIn orders
}

func (s *Closer) newClosing(tx *gorm.DB, requests map[string]orderclose.CloseRequest, where db.Candidates) *closing {
	c := &closing{Rows: *s.NewRows(tx, requests, where), leftOut: map[string]bool{}}
	for range s.Q.M.Stock {
		c.before = append(c.before, map[string]quantities{})
	}
	return c
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
	if err := c.LockOrders(ids); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if c.entries {
		if err := c.lockEntries(); err != nil {
			return fmt.Errorf("lock entries of indexes: %w", err)
		}
	}
	if c.stockFirst {
		if err := c.lockStockFirst(); err != nil {
			return fmt.Errorf("lock the stock: %w", err)
		}
	}
	if len(c.won) == 0 {
		return c.ReadClock()
	}
	stop := c.nameLock()
	err := c.write()
	if told := stop(); db.HasCode(err, db.LockedCodes) && !errors.Is(err, orderclose.ErrContended) {
		err = c.waited(err, told)
	}
	return err
}

// add takes the results of a later transaction for some of the orders.
func (c *closing) add(later *closing) {
	if c.Now.IsZero() {
		c.Now = later.Now
	}
	c.all = append(c.all, later.all...)
	for id, row := range later.Orders {
		if row.at.IsZero() {
			row.at = later.Now
		}
		c.Orders[id] = row
		delete(c.Contended, id)
	}
	maps.Copy(c.Contended, later.Contended)
}

// write makes all changes of a close.
func (c *closing) write() error {
	returned, moved := Returns{}, c.S.newMoves()
	c.step = "items"
	for _, t := range sorted(c.won) { // before the mark, whose triggers may change lines
		if err := c.S.returnLines(c.Tx, t, c.won[t], returned, moved); err != nil {
			return err
		}
		c.all = append(c.all, c.won[t]...)
	}
	slices.Sort(c.all)
	c.step = "status"
	for _, t := range sorted(c.won) {
		if err := c.mark(t); err != nil {
			return fmt.Errorf("mark as closed: %w", err)
		}
	}
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

// mark is the compare-and-set. The rows are locked, and were read as unpaid and due, so
// another count of changed rows means that the lock did not hold. settle looks later at what triggers did.
func (c *closing) mark(t *db.Table) error {
	for part := range slices.Chunk(c.won[t], db.MaxIn) {
		noWait := c.S.Dialect.NoWait
		if c.entries {
			noWait = ""
		}
		err := db.Own(c.Tx).Change(len(part), noWait+t.Mark, c.S.Q.MarkArgs(c.S.Q.Args(part), c.Now)...)
		if noWait != "" && db.HasCode(err, db.LockedCodes) {
			err = fmt.Errorf("%w: %w", errMarkLocked, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// HasStatus returns an error if orders do not have a status that was written to them: a trigger of the shop has set another one, and counts of
// changed rows do not show that.
func (s *Closer) HasStatus(tx db.Lent, t *db.Table, ids []any, status mapping.Value) error {
	n, err := db.ValueOf[int](tx, t.Has, ids, status.Arg())
	if err == nil && n != len(ids) { //mutant:kept-status-closed
		err = because(orderclose.RefusedByTrigger, "%d of %d orders do not have the status %v after it was written: "+
			"a trigger has set another one; let the trigger raise an error, or let the shop change the order before", len(ids)-n, len(ids), status)
	}
	return err
}

// Settled is HasStatus at the end of a transaction of the store, if a table that a close writes may have triggers. Deferred ones run now, and not in the
// commit.
func (s *Closer) Settled(tx db.Lent, t *db.Table, ids []any, status mapping.Value) (triggers bool, err error) {
	n, err := db.ValueOf[int](tx, t.Triggers)
	if err != nil || n == 0 {
		return false, err
	}
	if s.Dialect.Settle != "" {
		_, err = tx.Exec(s.Dialect.Settle)
	}
	if err == nil {
		err = s.HasStatus(tx, t, ids, status)
	}
	return true, err
}

// errWatch says that a table has got a trigger, which may change what comes back to the stock.
var errWatch = fmt.Errorf("%w: a table that a close writes has got a trigger", orderclose.ErrContended)

// settle is the last step of a close: it looks at what triggers have made of the statuses, and of the stock.
func (c *closing) settle(moved moves) error {
	triggers := false
	if c.S.Dialect.FailFast != "" && c.watched && !c.stockFirst { // deferred triggers wait in the queue of the server
		for _, statement := range c.S.Dialect.ShortWaits {
			if err := c.Tx.Exec(statement).Error; err != nil {
				return err
			}
		}
	}
	for _, t := range sorted(c.won) {
		for part := range slices.Chunk(c.won[t], db.MaxIn) {
			has, err := c.S.Settled(db.Own(c.Tx), t, c.S.Q.Args(part), c.S.Q.M.Status.To)
			if err != nil {
				return err
			}
			triggers = triggers || has
		}
	}
	switch c.S.watch.Store(triggers); {
	case triggers && !c.watched:
		return errWatch
	case !c.watched:
		return nil
	}
	for i, stock := range c.S.Q.M.Stock {
		after := map[string]quantities{}
		for part := range slices.Chunk(slices.Sorted(maps.Keys(moved[i])), db.MaxIn) {
			rows, err := c.S.stockRows(c.Tx, stock, part, "")
			if err != nil {
				return err
			}
			maps.Copy(after, rows)
		}
		if err := returnedTo(stock, c.before[i], after, moved[i]); err != nil {
			return err
		}
	}
	return nil
}

// returnedTo returns an error if the rows of a table of stock have not changed by the quantities that come back. Rows that the lines spell in
// another way are compared by their sums.
func returnedTo(stock *mapping.Stock, before, after map[string]quantities, moved map[string]int64) error {
	refused := func(what string, available, reserved int64) error {
		if (stock.Available == "" || available == 0) && (stock.Reserved == "" || reserved == 0) { //mutant:capped-stock-lost
			return nil
		}
		return because(orderclose.RefusedByTrigger, "after the stock of %s came back to table %s, %+d are available and %+d reserved beside what the lines hold: "+
			"a trigger has changed it; let the trigger raise an error, or leave the stock as a close writes it", what, stock.Table, available, reserved)
	}
	var available, reserved int64 // of the rows that are spelled in another way
	for sku, quantity := range moved {
		if _, same := after[sku]; !same {
			available -= quantity
			reserved += quantity
		}
	}
	for _, sku := range slices.Sorted(maps.Keys(after)) {
		quantity, same := moved[sku]
		a := after[sku].available.Int64 - before[sku].available.Int64 - quantity
		r := after[sku].reserved.Int64 - before[sku].reserved.Int64 + quantity
		if !same {
			available += a
			reserved += r
		} else if err := refused(fmt.Sprintf("SKU %q", sku), a, r); err != nil {
			return err
		}
	}
	return refused("several SKUs", available, reserved)
}

// receipts writes the receipt of each closed order. Its key ensures that an order is closed, and its stock returned, once.
func (c *closing) receipts(returned Returns) error {
	d := c.S.Dialect
	now := d.Time(c.Now)
	in := db.Insert{Into: "receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms, returned)"}
	for _, id := range c.all {
		lines, _ := json.Marshal(returned[id]) // a map of numbers always has a form in JSON
		due := orderclose.CeilMilli(c.Orders[id].Due)
		in.Row(id, orderclose.Closed, d.Time(due), now, c.path, c.requests[id].Attempt, c.Now.Sub(due).Milliseconds(), string(lines))
	}
	return in.Exec(c.Tx, c.S.Dialect)
}

// events writes one event for each closed order into the outbox.
func (c *closing) events(returned Returns) error {
	now := c.S.Dialect.Time(c.Now)
	in := db.Insert{Into: "outbox_events (order_id, payload, created_at)"}
	for _, id := range c.all {
		row := c.Orders[id]
		payload, err := EncodeKept(orderclose.OrderClosed{
			Type: c.S.Q.M.Event, OrderID: id, Category: row.Category, Due: row.Due, ClosedAt: c.Now, Path: c.path,
			Attempts: c.requests[id].Attempt, Version: row.Version + 1, Columns: row.Columns,
		}, returned[id], c.requests[id].Traceparent)
		if err != nil {
			return err
		}
		in.Row(id, payload, now)
	}
	return in.Exec(c.Tx, c.S.Dialect)
}

// ReceiptRow is the receipt of the order's close.
type ReceiptRow struct {
	Verdict    orderclose.Verdict `json:"verdict"`
	Due        time.Time          `json:"due_at"`
	ClosedAt   time.Time          `json:"closed_at"`
	Path       orderclose.Path    `json:"path"`
	Attempts   int                `json:"attempts"`
	LatenessMS int64              `json:"lateness_ms"`
}

// EachReceipt calls each for the receipts of orders, with the order's id.
func EachReceipt(tx *gorm.DB, ids []string, each func(id string, r *ReceiptRow)) error {
	return db.Wrap(db.EachRow(tx, "SELECT order_id, verdict, due, closed_at, path, attempts, lateness_ms FROM receipts WHERE order_id IN ?",
		[]any{ids}, func(rows *sql.Rows) error {
			var id string
			var r ReceiptRow
			err := rows.Scan(&id, &r.Verdict, db.TimeInto(&r.Due), db.TimeInto(&r.ClosedAt), &r.Path, &r.Attempts, &r.LatenessMS)
			each(id, &r)
			return err
		}), "receipts")
}

// OnClose sets the further statements of a close (Mapping.OnClose), for tests and development with the
// tables that Migrate creates. Call it before the first close.
func (s *Closer) OnClose(statements []string) { s.Q.M.OnClose = statements }

// rowsOfAnOrder is how many rows a statement of Mapping.OnClose may change for each closed order: more than the lines of
// any order. MySQL counts a row of ON DUPLICATE KEY UPDATE twice.
const rowsOfAnOrder = 1000

// onClose runs the statements of Mapping.OnClose for the orders that this transaction closes. First it runs each for an
// id that no order has. In both runs a row of another order has no id of the list, so both change it or none does. A
// statement whose first run changes a row is refused. A row that is committed between the two runs is not seen.
func (c *closing) onClose() error {
	for i, statement := range c.S.Q.M.OnClose {
		c.step = fmt.Sprintf("on_close[%d]", i)
		n, err := c.change(statement, []any{c.S.Q.M.ID.NoOrder(c.all[0])})
		if err == nil && n > 0 { //mutant:close-changes-others
			return db.Unavailable(c.Tx.Statement.Context, c.S.Placed([]mapping.Problem{{
				Path: c.step, What: fmt.Sprintf("the statement changes %d rows if no order is closed", n), Why: "it changes rows of other orders",
				Fix: "write the condition order_id IN (" + mapping.IDs + ") without NOT and with AND beside it; to a SELECT of sums, add HAVING COUNT(*) > 0",
			}}))
		}
		for ids := range slices.Chunk(c.all, db.MaxIn) {
			if err == nil {
				n, err = c.change(statement, c.S.Q.Args(ids))
				c.onClosed = append(c.onClosed, n)
			}
			if err == nil && n > int64(rowsOfAnOrder*len(ids)) {
				err = fmt.Errorf("the statement changes %d rows, and may change up to %d for each of %d orders; "+
					"let it find its rows by a column that holds the order's id", n, rowsOfAnOrder, len(ids))
			}
		}
		if err != nil {
			return fmt.Errorf("orders.on_close[%d]: %w", i, err)
		}
	}
	return nil
}

// change runs a statement of Mapping.OnClose for ids, and returns how many rows it changed.
func (c *closing) change(statement string, ids []any) (int64, error) {
	return db.ExecLong(c.Tx, db.OnCloseSQL(statement, "?"+strings.Repeat(", ?", len(ids)-1)), ids)
}
