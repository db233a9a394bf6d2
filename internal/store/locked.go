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
// orders, lines and stock, in whatever order the shop locks them. It locks the rows of orders first, then their lines, and the stock last.
const (
	// stockWait is how long a close asks again for rows of stock that others lock. A close
	// of 500 orders locks its rows of stock for 2 to 20 ms. Meanwhile payments of the orders wait.
	stockWait = 50 * time.Millisecond
	// stockPoll is the pause between two such questions.
	stockPoll = time.Millisecond
	// crowdedFor is how long a row of stock is remembered for which stockWait was not enough. Meanwhile
	// closes ask for this row before they write anything.
	crowdedFor = 5 * time.Second
	// crowdedBatch is how many orders a transaction closes while a row is remembered: a checkout waits for one of 100 half as long as for one of 500.
	crowdedBatch = 100
	// roundsFor is how long CloseOrders tries again the orders that it left out, in further transactions. With the
	// first one it stays below the closer's target of 250 ms for a call.
	roundsFor = 150 * time.Millisecond
	// roundPause is the pause before each of these transactions. The shop uses it to lock rows.
	roundPause = 10 * time.Millisecond
	// lockMemory is how long a row of stock is remembered for which a close has waited in the server's queue in vain. Meanwhile
	// no close waits for it there.
	lockMemory = time.Minute
)

// errRowLocked is the error of a Contended order that was left out of a batch.
var errRowLocked = fmt.Errorf("%w: another transaction locks the order's row, one of its lines, or the row of one of its SKUs", orderclose.ErrContended)

// Errors of a transaction of a close, which is tried again at once without some of its orders.
var (
	errLinesLocked = fmt.Errorf("%w: another transaction locks a line of the batch", orderclose.ErrContended)
	errStockLocked = fmt.Errorf("%w: another transaction locks a row of the stock of the batch", orderclose.ErrContended)
)

// hotRow names a row of the i-th table of Mapping.Stock.
type hotRow struct {
	i   int
	sku string // as an order's line or the stock spells it; in Store.hot as folded does
}

// folded returns the name of a row in Store.hot: lines may spell a SKU otherwise than the stock. If two rows have one name, some of their
// orders wait longer.
func (r hotRow) folded() hotRow { return hotRow{r.i, strings.ToLower(strings.TrimRight(r.sku, " "))} }

// hotRows returns the rows for whose locks closes have waited in vain, and until when they are remembered. If that is more than
// crowdedFor ahead, a close has waited in the server's queue. Each row has cost a wait, so there are few.
func (s *Store) hotRows() map[hotRow]time.Time {
	rows, now := map[hotRow]time.Time{}, time.Now()
	for row, until := range s.hot.Range {
		if now.Before(until.(time.Time)) {
			rows[row.(hotRow)] = until.(time.Time)
		} else {
			s.hot.CompareAndDelete(row, until)
		}
	}
	return rows
}

// remember remembers a row that another transaction locks, for at least so long.
func (s *Store) remember(row hotRow, long time.Duration) {
	until := time.Now().Add(long)
	if known, _ := s.hot.LoadOrStore(row.folded(), until); known.(time.Time).Before(until) {
		s.hot.Store(row.folded(), until)
	}
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
		c.s.remember(*c.turn, lockMemory)
		return fmt.Errorf("%w: %w", errStockLocked, err)
	}
	return err
}

// lockHotRows locks those rows of stock that are remembered, before anything is written. It leaves out the orders that need
// one that another transaction still locks, and makes the row that most of these need c.turn of the next transaction.
func (c *closing) lockHotRows() error {
	c.turn, c.asked = nil, c.s.hotRows()
	if len(c.asked) == 0 {
		return nil
	}
	needs := make([]map[string][]string, len(c.s.q.m.Stock)) // orders by SKU
	for i := range needs {
		needs[i] = map[string][]string{}
		for _, lines := range c.lines {
			for _, l := range lines[i] {
				row := hotRow{i, c.s.q.stockSKU(i, l.sku)}
				if _, is := c.asked[row.folded()]; is && l.quantity != 0 {
					needs[i][row.sku] = append(needs[i][row.sku], l.order)
				}
			}
		}
	}
	most := 0
	for i, of := range needs {
		skus := slices.Sorted(maps.Keys(of))
		locked, err := c.s.lockStock(c.tx, i, skus)
		if err != nil {
			return err
		}
		for _, sku := range skus {
			row := hotRow{i, sku}
			stuck := time.Until(c.asked[row.folded()]) > crowdedFor
			if !locked[row.folded()] {
				if stuck {
					c.s.hot.Delete(row.folded()) // the transaction that has locked it for long has ended
				}
				continue
			}
			c.s.remember(row, crowdedFor)
			for _, id := range of[sku] {
				c.leftOut[id], c.contended[id] = true, true
			}
			if len(of[sku]) > most && !stuck {
				most, c.turn = len(of[sku]), &row
			}
		}
	}
	out := func(id string) bool { return c.leftOut[id] }
	for t, ids := range c.won {
		if c.won[t] = slices.DeleteFunc(ids, out); len(c.won[t]) == 0 {
			delete(c.won, t)
		}
	}
	for _, lines := range c.lines {
		for i := range lines {
			lines[i] = slices.DeleteFunc(lines[i], func(l line) bool { return out(l.order) })
		}
	}
	return nil
}

// lockStockLast locks the rows of stock that a close writes, in the order of their keys. If another transaction locks one of them, such as
// another close, it tries again and again for up to stockWait. Then it remembers which rows are locked, and the error is errStockLocked.
func (c *closing) lockStockLast(moved moves) error {
	if c.s.dialect.skipLocked == "" {
		return nil // this database locks no rows
	}
	if err := c.tx.Exec("SAVEPOINT stock").Error; err != nil {
		return err
	}
	for began := time.Now(); ; {
		err := c.lockStockNow(moved)
		if !hasCode(err, lockedCodes) {
			return err
		}
		// With innodb_rollback_on_timeout, MariaDB has rolled back the whole transaction. Then there is no savepoint.
		err = c.tx.Exec("ROLLBACK TO SAVEPOINT stock").Error
		lost := hasCode(err, "1305")
		if err != nil && !lost {
			return err
		}
		if lost || time.Since(began) > stockWait || !retry.Sleep(c.tx.Statement.Context, stockPoll) {
			return cmp.Or(c.tx.Statement.Context.Err(), c.rememberLocked(moved))
		}
	}
}

// rememberLocked remembers the rows of stock that other transactions lock now. It returns errStockLocked if the next transaction can leave
// out their orders, and errRowLocked if it cannot: the lines spell the SKUs in a way that folded does not know.
func (c *closing) rememberLocked(moved moves) error {
	err := errStockLocked
	for i, of := range moved {
		locked, failed := c.s.lockStock(c.tx, i, slices.Sorted(maps.Keys(of)))
		if failed != nil {
			return failed
		}
		for row := range locked {
			if c.s.remember(row, crowdedFor); !c.asked[row].IsZero() {
				err = errRowLocked
			}
		}
	}
	return err
}

// lockStockNow locks the rows of stock that a close writes. It fails at the first row that another transaction locks: so two closes
// never wait for each other, as they would with SKIP LOCKED.
func (c *closing) lockStockNow(moved moves) error {
	for i, stock := range c.s.q.m.Stock {
		for part := range slices.Chunk(slices.SortedFunc(maps.Keys(moved[i]), compareStock(stock)), maxIn) {
			if _, err := c.s.stockRows(c.tx, stock, part, c.s.dialect.lock+" NOWAIT"); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockStock locks those rows of the i-th table of stock that no other transaction locks, and returns the others, as folded names them. It waits
// for no lock, and ignores SKUs without a row.
func (s *Store) lockStock(tx *gorm.DB, i int, skus []string) (locked map[hotRow]bool, err error) {
	locked = map[hotRow]bool{}
	for part := range slices.Chunk(skus, maxIn) {
		free, err := s.stockRows(tx, s.q.m.Stock[i], part, s.dialect.skipLocked)
		if err != nil {
			return nil, err
		}
		if len(free) == len(part) {
			continue
		}
		all, err := s.stockRows(tx, s.q.m.Stock[i], part, "")
		if err != nil {
			return nil, err
		}
		for sku := range all {
			if !free[sku] {
				locked[hotRow{i, sku}.folded()] = true
			}
		}
	}
	return locked, nil
}

// stockRows returns the SKUs of at most maxIn that have a row of the stock, locked by lock, spelled as in the stock.
func (s *Store) stockRows(tx *gorm.DB, stock *mapping.Stock, skus []string, lock string) (map[string]bool, error) {
	is, read := stockKey(stock)
	var args []any
	for _, sku := range skus {
		args = append(args, stockArgs(stock, sku)...)
	}
	if is += strings.Repeat(" OR "+is, len(skus)-1); stock.Location.Column == "" {
		is, args = mapping.Quote(stock.SKU.Column)+" IN ?", []any{args}
	}
	found := make(map[string]bool, len(skus))
	query := "SELECT " + strings.Join(read, ", ") + " FROM " + mapping.Quote(stock.Table) + s.dialect.hint(stock.SKU.Index) +
		" WHERE " + is + " ORDER BY " + mapping.Quote(stock.SKU.Column) + lock
	return found, eachRow(tx, query, args, func(rows *sql.Rows) error {
		var sku string
		var location sql.NullString
		err := rows.Scan(&sku, &location)
		found[located(sku, location)] = true
		return err
	})
}

// ordersWithLockedLines returns the orders of a table with a line that another transaction locks. It counts the lines that nobody locks, and
// then all: committed lines do not include a new line of an open transaction, and uncommitted lines do not include one that it deletes. A line that is
// added between two of the statements counts as locked. If a statement fails, it returns none: the close meets the error again.
func (s *Store) ordersWithLockedLines(ctx context.Context, t *table, ids []string) (locked []string) {
	var lines [3]map[string]int // by order
	for i, isolation := range []*sql.TxOptions{readCommitted, readCommitted, readUncommitted} {
		query := t.lines
		if i == 0 {
			query += s.dialect.share("SKIP LOCKED")
		}
		lines[i] = map[string]int{}
		err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			return eachRow(tx, query, s.q.lineArgs(ids), func(rows *sql.Rows) error {
				var id string
				err := rows.Scan(append([]any{&id}, skipped(3+max(len(s.q.m.Stock)-1, 0))...)...)
				lines[i][id]++
				return err
			})
		}, isolation)
		if err != nil {
			return nil
		}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return lines[0][id] >= max(lines[1][id], lines[2][id]) })
}
