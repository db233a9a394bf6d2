package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// kindClose is why a close releases stock. The table stock_ledger has no rows of closes: receipts.returned has what they returned. Of a mapping
// without stock a history calls it kindRelease: somebody who reads the event gives it back.
const kindClose, kindRelease = "close", "release"

// line is the quantity of one SKU that an order holds.
type line struct {
	order, sku string
	quantity   int64
}

// returns are the quantities that a close returns to the stock, by order and SKU. SKUs are spelled as in the lines.
type returns map[string]map[string]int64

// returnLines locks the orders' lines, and adds what each of the orders returns, with the lines of one SKU summed, to returned and to moved.
func (s *Store) returnLines(tx *gorm.DB, t *table, orders []string, returned returns, moved moves) error {
	for _, id := range orders {
		returned[id] = map[string]int64{}
	}
	if t.lines == "" {
		return nil
	}
	for part := range slices.Chunk(orders, maxIn) {
		all, unreadable, err := s.holdLines(tx, t, part)
		for _, bad := range unreadable {
			err = cmp.Or(err, bad)
		}
		for i := range all {
			if err == nil {
				err = strayLine(part, all[i])
			}
		}
		if err != nil {
			return fmt.Errorf("read lines: %w", err)
		}
		for i := range all {
			for _, l := range all[i] {
				if err := outOfRange(l); err != nil {
					return err
				}
				s.add(moved, i, l)
			}
		}
		for _, l := range all[0] {
			if l.quantity > 0 { // 0 is a gift, or a line that was removed: the order holds nothing
				returned[l.order][l.sku] = l.quantity
			}
		}
	}
	return nil
}

// holdLines locks the orders' lines and reads them. Another transaction may have replaced them while the SELECT that
// locks waited: with Dialect.isolation a second SELECT looks, and new lines are locked too.
func (s *Store) holdLines(tx *gorm.DB, t *table, orders []string) (all [][]line, unreadable map[string]error, err error) {
	all, unreadable, err = s.readLines(tx, t.lockLines, orders)
	if hasCode(err, lockedCodes) {
		err = fmt.Errorf("%w: %w", errLinesLocked, err)
	}
	if err != nil || s.dialect.isolation == "" {
		return all, unreadable, err
	}
	now, _, err := s.readLines(tx, t.countedLines, orders)
	if err != nil || slices.EqualFunc(all, now, slices.Equal[[]line]) {
		return all, unreadable, err
	}
	return s.readLines(tx, t.lockLines, orders)
}

// sumLines sums the lines of one order and SKU, in place, and sorts by order and SKU.
func sumLines(lines []line) []line {
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(strings.Compare(a.order, b.order), strings.Compare(a.sku, b.sku))
	})
	n := 0
	for _, l := range lines {
		if n > 0 && lines[n-1].order == l.order && lines[n-1].sku == l.sku {
			lines[n-1].quantity += l.quantity
			continue
		}
		lines[n] = l
		n++
	}
	return lines[:n]
}

// strayLine returns the error of a line whose order is none of those that were asked for: the collation takes both ids for one. nil: there is
// none.
func strayLine(orders []string, lines []line) error {
	asked := make(map[string]bool, len(orders))
	for _, id := range orders {
		asked[id] = true
	}
	if i := slices.IndexFunc(lines, func(l line) bool { return !asked[l.order] }); i >= 0 {
		return because(orderclose.LinesWrong, "the lines of order %q belong to no order: write ids the same way in both tables", lines[i].order)
	}
	return nil
}

// existing searches orders in a table by their ids, and returns those that it finds as their rows spell them.
// It locks nothing.
func (s *Store) existing(tx *gorm.DB, t *table, ids []string) (all []string, err error) {
	for part := range slices.Chunk(ids, maxIn) {
		err := searched(part, func(ids []string) error {
			var found []string
			err := tx.Raw(t.exists, s.q.args(ids)).Scan(&found).Error
			all = append(all, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// moveStock moves quantities from reserved to available, in SKU order, in one table of stock after the other. It
// must be the last statement of its transaction. It fails as a whole if a SKU has
// no row, or less reserved than released. Without a mapped stock it does nothing: the owner
// of the stock reads the release from the event.
func (c *closing) moveStock(moved moves) error {
	s := c.s
	if err := c.awaitStockTurn(); err != nil {
		return err
	}
	waits, err := s.releaseWaits(c.tx)
	if err != nil {
		return err
	}
	c.watched = c.watched || waits // then the rows are read before anyway, and most users of MySQL see no triggers
	until := time.Now().Add(stockWait)
	for i, stock := range s.q.m.Stock {
		sums := moved[i]
		skus := slices.SortedFunc(maps.Keys(sums), compareStock(stock))
		for part := range slices.Chunk(skus, maxIn) {
			args := make([]any, 0, 3*len(part))
			for _, sku := range part {
				args = append(append(args, stockArgs(stock, sku)...), sums[sku])
			}
			err := c.release(i, part, append(args, s.q.stockLockArgs(i, c.now)...), until)
			if err != nil {
				return fmt.Errorf("release the stock of %d SKUs from %q in table %s: %w", len(part), part[0], stock.Table, err)
			}
		}
	}
	return nil
}
