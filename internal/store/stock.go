package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// kindClose is why a close releases stock. The ledger has no rows of closes, except those that programs before version 26 of the schema
// wrote: receipts.returned has what closes returned.
const kindClose = "close"

// line is the quantity of one SKU that an order holds.
type line struct {
	order, sku string
	quantity   int64
}

// returns are the quantities that a close returns to the stock, by order and SKU; 0: the close leaves that stock out. SKUs are spelled as
// in the lines.
type returns map[string]map[string]int64

// returnLines locks the orders' lines, and adds what each of the orders returns, with the lines of one SKU summed, to returned and to moved.
func (s *Store) returnLines(tx *gorm.DB, t *table, orders []string, returned returns, moved moves) error {
	for _, id := range orders {
		returned[id] = map[string]int64{}
	}
	if t.lines == "" {
		_, err := s.leaveOut(tx, nil, returned)
		return err
	}
	for part := range slices.Chunk(orders, maxIn) {
		all, unreadable, err := s.holdLines(tx, t, part)
		for _, bad := range unreadable {
			err = cmp.Or(err, bad)
		}
		for i := range all {
			if err == nil {
				all[i], err = s.ownLines(tx, t, part, all[i])
			}
		}
		if err == nil {
			all[0], err = s.leaveOut(tx, all[0], returned)
		}
		if err != nil {
			return fmt.Errorf("read lines: %w", err)
		}
		for i := range all {
			for _, l := range all[i] {
				s.add(moved, i, l)
			}
		}
		for _, l := range all[0] {
			if l.quantity < 0 {
				return negative(l)
			}
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
	now, _, err := s.readLines(tx, t.lines, orders)
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

// ownLines gives each line the id of its order as the table of orders spells it: if the collation takes
// both for one id, the lines that the database returns for an order may spell its id in another way. Lines
// of other orders are dropped. The error names an id that is none of the orders.
func (s *Store) ownLines(tx *gorm.DB, t *table, orders []string, lines []line) ([]line, error) {
	asked := make(map[string]bool, len(orders))
	for _, id := range orders {
		asked[id] = true
	}
	if !slices.ContainsFunc(lines, func(l line) bool { return !asked[l.order] }) {
		return lines, nil
	}
	lines, err := s.withoutOthers(tx, t, asked, lines)
	if err != nil {
		return nil, err
	}
	exact := func(id string) string { return strings.TrimRight(id, " ") }
	folded := func(id string) string { return strings.ToLower(exact(id)) }
	owners := map[string]string{}
	for _, spell := range []func(string) string{folded, exact} { // the exact spelling wins
		for _, id := range orders {
			owners[spell(id)] = id
		}
	}
	for i, l := range lines {
		if asked[l.order] {
			continue
		}
		lines[i].order = cmp.Or(owners[exact(l.order)], owners[folded(l.order)])
		if lines[i].order == "" {
			return nil, because(orderclose.LinesWrong, "the lines of order %q belong to no order: write ids the same way in both tables", l.order)
		}
	}
	return sumLines(lines), nil
}

// withoutOthers drops the lines of other orders. The collation of the table of lines may take the id of
// another order for one of the asked orders. CheckMapping refuses most such tables, but it does not see
// that two months have such ids, and a program may not call it.
func (s *Store) withoutOthers(tx *gorm.DB, t *table, asked map[string]bool, lines []line) ([]line, error) {
	var strays []string
	for _, l := range lines { // sorted by order
		if n := len(strays); !asked[l.order] && (n == 0 || strays[n-1] != l.order) {
			strays = append(strays, l.order)
		}
	}
	in := []*table{t}
	if !mapping.IsPattern(s.q.m.Items.Table) { // one table has the lines of all months
		in = slices.Collect(maps.Values(s.q.tables.list.Load().known))
	}
	for _, t := range in {
		others, err := s.existing(tx, t, strays)
		if err != nil {
			return nil, err
		}
		lines = slices.DeleteFunc(lines, func(l line) bool { return !asked[l.order] && slices.Contains(others, l.order) })
	}
	return lines, nil
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
//
// c.spelt has, for each table, the stock's spelling of SKUs that the lines spell otherwise. If it is nil and two
// SKUs may be one row of the stock, the error is a *spellingError.
func (c *closing) moveStock(moved moves) error {
	s := c.s
	if err := c.awaitStockTurn(); err != nil {
		return err
	}
	until := time.Now().Add(stockWait)
	for i, stock := range s.q.m.Stock {
		sums := moved[i]
		if c.spelt != nil {
			sums = map[string]int64{}
			for sku, quantity := range moved[i] {
				sums[cmp.Or(c.spelt[i][sku], sku)] += quantity
			}
		}
		skus := slices.SortedFunc(maps.Keys(sums), compareStock(stock))
		for part := range slices.Chunk(skus, maxIn) {
			args := make([]any, 0, 3*len(part))
			for _, sku := range part {
				args = append(append(args, stockArgs(stock, sku)...), sums[sku])
			}
			err := c.release(stock, part, append(args, s.q.stockLockArgs(i, c.now)...), until)
			if _, fewer := errors.AsType[*rowsError](err); fewer && c.spelt == nil {
				if err := s.spellingError(c.tx, moved); err != nil {
					return err
				}
			}
			if err != nil {
				return fmt.Errorf("release the stock of %d SKUs from %q in table %s: %w", len(part), part[0], stock.Table, err)
			}
		}
	}
	return nil
}

// spellingError returns a *spellingError if lines spell SKUs otherwise than the stock.
func (s *Store) spellingError(tx *gorm.DB, moved moves) error {
	e, other := &spellingError{}, 0
	for i, stock := range s.q.m.Stock {
		spelt, err := s.spellings(tx, stock, slices.Sorted(maps.Keys(moved[i])))
		if err != nil {
			return fmt.Errorf("read how the stock spells SKUs: %w", err)
		}
		e.spelt, other = append(e.spelt, spelt), other+len(spelt)
	}
	if other == 0 {
		return nil
	}
	return e
}

// spellingError says that lines spell SKUs otherwise than the stock, so that two of them may be one row.
// The transaction is tried again with the stock's spelling.
type spellingError struct {
	spelt []map[string]string // for each table, the stock's spelling, by the spelling of the lines
}

func (e *spellingError) Error() string { return "SKUs are not spelled as in the stock" }

// maxSpellings is the maximum number of SKUs in one query of spellings. SQLite unites at most 500
// SELECTs.
const maxSpellings = 400

// spellings returns the stock's spelling of each SKU that the stock finds by its collation
// and spells otherwise, such as ink for INK.
func (s *Store) spellings(tx *gorm.DB, stock *mapping.Stock, skus []string) (map[string]string, error) {
	is, read := stockKey(stock)
	one := "SELECT ?, " + strings.Join(read, ", ") + " FROM " + mapping.Quote(stock.Table) + s.dialect.hint(stock.SKU.Index) + " WHERE " + is
	spelt := map[string]string{}
	for part := range slices.Chunk(skus, maxSpellings) {
		args := make([]any, 0, 3*len(part))
		for _, sku := range part {
			args = append(append(args, sku), stockArgs(stock, sku)...)
		}
		type row struct {
			written, sku string
			location     sql.NullString
		}
		found, err := readAll(tx, one+strings.Repeat(" UNION ALL "+one, len(part)-1), args,
			func(r *row) []any { return []any{&r.written, &r.sku, &r.location} })
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			if is := located(r.sku, r.location); r.written != is {
				spelt[r.written] = is
			}
		}
	}
	return spelt, nil
}
