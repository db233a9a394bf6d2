package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// A close waits in no queue of the server for a row while it holds one, so it is part of no deadlock on the rows of
// orders, lines and stock, in whatever order the shop locks them at READ COMMITTED.
const (
	// stockWait is how long a close tries again to write rows of stock that others lock. A close of 500 orders locks its rows for 2 to 20 ms,
	// so a close can wait for those of a few other processes. Meanwhile payments of its orders wait.
	stockWait = 100 * time.Millisecond
	// firstPoll is the pause before the second such try. The pauses double up to lastPoll.
	firstPoll = 250 * time.Microsecond
	lastPoll  = time.Millisecond
	// crowdedFor is how long closes lock the stock first, after stockWait was not enough twice in a row, or a row of stock was locked then.
	crowdedFor = 5 * time.Second
	// crowdedBatch is how many orders a transaction closes meanwhile: a checkout waits for one of 100 half as long as for one of 500.
	crowdedBatch = 100
	// roundsFor is how long CloseOrders tries again the orders that it left out, in further transactions. With the
	// first one it stays below the closer's target of 250 ms for a call.
	roundsFor = 150 * time.Millisecond
	// roundPause is the pause before each of these transactions. The shop uses it to lock rows.
	roundPause = 10 * time.Millisecond
	// Transactions of manyOrders or more share SKUs, and each try of a statement with hundreds of SKUs costs the server some milliseconds.
	// Therefore only one such transaction of a Store moves stock at a time. Behind it the Store pauses for stockPause, in which
	// another process can lock the stock. This halves the time in which four processes close 100,000 orders.
	manyOrders = 50
	stockPause = 2 * time.Millisecond
	// lockMemory is how long a row of stock is remembered for whose lock a close has waited in vain. Meanwhile no close waits for it.
	lockMemory = time.Minute
)

// errRowLocked is the error of a Contended order that was left out of a batch.
var errRowLocked = fmt.Errorf("%w: another transaction locks the order's row, one of its lines, or the row of one of its SKUs", orderclose.ErrContended)

// Errors of a transaction of a close, which is tried again at once in another way.
var (
	errLinesLocked = fmt.Errorf("%w: another transaction locks a line of the batch", orderclose.ErrContended)
	errStockLocked = fmt.Errorf("%w: another transaction locks a row of the stock of the batch", orderclose.ErrContended)
)

// hotRow names a row of the i-th table of Mapping.Stock.
type hotRow struct {
	i   int
	sku string
}

// isStuck reports whether a close has waited in vain for the lock of a row. Without that memory, each batch with such a SKU would
// wait. Each row that it holds has cost a wait of seconds, so it stays small.
func (s *Store) isStuck(row hotRow) bool {
	until, known := s.stuck.Load(row)
	return known && time.Now().Before(until.(time.Time))
}

// awaitTurn locks the row of c.turn, and waits for it in the server's queue. The transaction holds nothing yet.
func (c *closing) awaitTurn() error {
	if c.turn == nil {
		return nil
	}
	stock := c.s.q.m.Stock[c.turn.i]
	is, _ := stockKey(stock)
	query := "SELECT 1 FROM " + mapping.Quote(stock.Table) + c.s.dialect.hint(stock.SKU.Index) + " WHERE " + is + c.s.dialect.lock
	err := eachRow(c.tx, query, stockArgs(stock, c.turn.sku), func(*sql.Rows) error { return nil })
	if err != nil && c.s.fault(c.tx.Statement.Context, err) == FaultRetry {
		c.s.stuck.Store(*c.turn, time.Now().Add(lockMemory))
		return fmt.Errorf("%w: %w", errStockLocked, err)
	}
	return err
}

// lockStockFirst locks the rows of stock that the orders of c.won need, before anything is written. It leaves out the orders that need a row that another
// transaction locks, and makes the row that most of them need c.turn of the next transaction.
func (c *closing) lockStockFirst() error {
	needs := make([]map[string][]string, len(c.s.q.m.Stock)) // orders by SKU
	for i := range needs {
		needs[i] = map[string][]string{}
	}
	for _, t := range sorted(c.won) {
		if t.lines == "" {
			continue
		}
		for part := range slices.Chunk(c.won[t], maxIn) {
			all, _, err := c.s.holdLines(c.tx, t, part) // an order whose lines cannot be read fails later
			if err != nil {
				return err
			}
			for i := range needs {
				for _, l := range all[i] {
					if l.quantity != 0 {
						sku := c.s.q.stockSKU(i, l.sku)
						needs[i][sku] = append(needs[i][sku], l.order)
					}
				}
			}
		}
	}
	most := 0
	c.turn = nil
	for i, of := range needs {
		locked, err := c.s.lockStock(c.tx, c.s.q.m.Stock[i], slices.Sorted(maps.Keys(of)))
		if err != nil {
			return err
		}
		for sku := range locked {
			if of[sku] == nil {
				return errStockLocked // the lines spell it otherwise
			}
			for _, id := range of[sku] {
				c.leftOut[id], c.contended[id] = true, true
			}
			if row := (hotRow{i, sku}); len(of[sku]) > most && !c.s.isStuck(row) {
				most, c.turn = len(of[sku]), &row
			}
		}
	}
	if len(c.leftOut) == 0 {
		return nil
	}
	c.s.crowded()
	for t, ids := range c.won {
		if c.won[t] = slices.DeleteFunc(ids, func(id string) bool { return c.leftOut[id] }); len(c.won[t]) == 0 {
			delete(c.won, t)
		}
	}
	return nil
}

// newStockTurn returns Store.stockTurn of a Store that has moved no stock.
func newStockTurn() chan time.Time {
	turn := make(chan time.Time, 1)
	turn <- time.Time{}
	return turn
}

// awaitStockTurn waits until no other transaction of many orders of this Store moves stock, for stockWait at most: the other one may hang.
// A transaction that has locked its stock first does not wait, nor one of a database that has one write transaction at a time.
func (c *closing) awaitStockTurn() error {
	if c.stockFirst || len(c.all) < manyOrders || c.s.dialect.skipLocked == "" {
		return nil
	}
	ctx := c.tx.Statement.Context
	limited, cancel := context.WithTimeout(ctx, stockWait)
	defer cancel()
	select {
	case ended := <-c.s.stockTurn:
		c.stockTurn = true
		if time.Since(ended) < stockPause {
			retry.Sleep(ctx, stockPause)
		}
	case <-limited.Done():
	}
	return ctx.Err()
}

// endStockTurn lets another transaction move stock.
func (c *closing) endStockTurn() {
	if c != nil && c.stockTurn {
		c.stockTurn = false
		c.s.stockTurn <- time.Now()
	}
}

// crowded makes closes lock the stock first for crowdedFor.
func (s *Store) crowded() { s.crowdedUntil.Store(time.Now().Add(crowdedFor).UnixNano()) }

func (s *Store) isCrowded() bool { return time.Now().UnixNano() < s.crowdedUntil.Load() }

// release runs ReleaseStock for SKUs, in the order of their keys. While another transaction, such as another close, locks one of the rows, release repeats the
// statement. At the time until it gives up: the error is errStockLocked. If lockStockFirst has locked the rows before, release runs the statement once.
func (c *closing) release(i int, skus []string, args []any, until time.Time) error {
	d, ctx, stock := c.s.dialect, c.tx.Statement.Context, c.s.q.m.Stock[i]
	change := func(lock string) (err error) {
		var rows map[string]quantities
		if c.watched {
			rows, err = c.s.stockRows(c.tx, stock, skus, lock)
		}
		if err == nil {
			err = execRows(c.tx, len(skus), d.ReleaseStock(stock, len(skus)), args)
		}
		if err == nil {
			c.before[i] = c.before[i].plus(rows)
		}
		return err
	}
	if c.stockFirst || d.skipLocked == "" {
		return change("")
	}
	if d.failFast != "" {
		if err := c.tx.Exec(d.failFast).Error; err != nil {
			return err
		}
	}
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		err := change(d.lock + " NOWAIT")
		switch {
		case !hasCode(err, lockedCodes):
			return err
		case time.Now().After(until) || !retry.Sleep(ctx, pause):
			return cmp.Or(ctx.Err(), errStockLocked)
		}
		if err = c.undoRelease(err); err != nil {
			return err
		}
	}
}

// undoRelease prepares the transaction for the next try of ReleaseStock, after a lock has made the last try fail. With innodb_rollback_on_timeout=ON, MariaDB
// has then rolled back the whole transaction, and would commit each further statement alone. In this case the error is errStockLocked.
func (c *closing) undoRelease(failed error) error {
	if c.s.dialect.failFast != "" {
		return c.tx.Exec("ROLLBACK TO SAVEPOINT stock").Error
	}
	if !hasCode(failed, "1205") {
		return nil // MySQL says 3572
	}
	open, err := valueOf[bool](own(c.tx), "SELECT @@in_transaction")
	if err == nil && !open {
		err = errStockLocked
	}
	return err
}

// releaseWaits reports whether ReleaseStock waits for rows that other transactions lock, so that they have to be locked before.
func (s *Store) releaseWaits(tx *gorm.DB) (bool, error) {
	if s.dialect.releaseWaits == "" {
		return false, nil
	}
	if known := s.waits.Load(); known != nil {
		return *known, nil
	}
	waits, err := valueOf[bool](own(tx), s.dialect.releaseWaits)
	if err == nil {
		s.waits.Store(&waits)
	}
	return waits, err
}

// lockStock locks the rows of SKUs that no other transaction locks, and returns the SKUs of the others, spelled as
// in the stock. It waits for no lock, and ignores SKUs without a row.
func (s *Store) lockStock(tx *gorm.DB, stock *mapping.Stock, skus []string) (locked map[string]bool, err error) {
	if s.dialect.skipLocked == "" {
		return nil, nil // this database locks no rows
	}
	locked = map[string]bool{}
	for part := range slices.Chunk(skus, maxIn) {
		free, err := s.stockRows(tx, stock, part, s.dialect.skipLocked)
		if err != nil {
			return nil, err
		}
		if len(free) == len(part) {
			continue
		}
		all, err := s.stockRows(tx, stock, part, "")
		if err != nil {
			return nil, err
		}
		for sku := range all {
			if _, is := free[sku]; !is {
				locked[sku] = true
			}
		}
	}
	return locked, nil
}

// stockRows returns the rows of the stock of at most maxIn SKUs, locked by lock, by SKUs spelled as in the stock.
func (s *Store) stockRows(tx *gorm.DB, stock *mapping.Stock, skus []string, lock string) (map[string]quantities, error) {
	is, read := stockKey(stock)
	var args []any
	for _, sku := range skus {
		args = append(args, stockArgs(stock, sku)...)
	}
	if is += strings.Repeat(" OR "+is, len(skus)-1); stock.Location.Column == "" {
		is, args = mapping.Quote(stock.SKU.Column)+" IN ?", []any{args}
	}
	found := make(map[string]quantities, len(skus))
	read = append(read, orElse(stock.Available, "0"), orElse(stock.Reserved, "0"))
	query := "SELECT " + strings.Join(read, ", ") + " FROM " + mapping.Quote(stock.Table) + s.dialect.hint(stock.SKU.Index) +
		" WHERE " + is + " ORDER BY " + mapping.Quote(stock.SKU.Column) + lock
	return found, eachRow(tx, query, args, func(rows *sql.Rows) error {
		var r quantities
		var location sql.NullString
		err := rows.Scan(&r.sku, &location, &r.available, &r.reserved)
		r.sku = located(r.sku, location)
		found[r.sku] = r
		return err
	})
}

// ordersWithLockedLines returns the orders with a line that another transaction locks; none if a query fails. It reads twice: committed rows do not include a
// new line of an open transaction, and uncommitted rows do not include a line that it deletes.
func (s *Store) ordersWithLockedLines(ctx context.Context, ids []string, where candidates) map[string]bool {
	found := map[string]bool{}
	for _, isolation := range []*sql.TxOptions{readCommitted, readUncommitted} {
		err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			for _, t := range where.all {
				for part := range slices.Chunk(ids, maxIn) {
					if err := s.lockedLinesIn(tx, t, part, found); err != nil {
						return err
					}
				}
			}
			return nil
		}, isolation)
		if err != nil {
			return nil
		}
	}
	return found
}

// lockedLinesIn marks the orders of a table with a line that is locked.
func (s *Store) lockedLinesIn(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	if t.lines == "" {
		return nil
	}
	free := map[string]int{} // by order: lines that are not locked, less all lines
	for lock, n := range map[string]int{"": -1, s.dialect.share("SKIP LOCKED"): 1} {
		err := eachRow(tx, t.lines+lock, s.q.lineArgs(ids), func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(append([]any{&id}, skipped(3+max(len(s.q.m.Stock)-1, 0))...)...)
			free[id] += n
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, id := range ids {
		if free[id] < 0 {
			found[id] = true
		}
	}
	return nil
}

// skipped returns n destinations for columns that are not read.
func skipped(n int) []any {
	into := make([]any, n)
	for i := range into {
		into[i] = new(any)
	}
	return into
}
