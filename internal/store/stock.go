package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// kind is why stock was released or shipped. It is the last part of the ledger's key.
type kind string

const (
	kindClose  kind = "close"
	kindCancel kind = "cancel"
	kindShip   kind = "ship"
)

// line is the quantity of one SKU that an order holds.
type line struct {
	order, sku string
	quantity   int64
}

// recordLines locks the orders' lines and writes their ledger rows, with the lines of one SKU
// summed. It returns what each order releases, in SKU order, without the releases' keys. The
// ledger's unique key ensures that stock is released once. SKUs are spelled as in the lines.
func (s *Store) recordLines(tx *gorm.DB, t *table, orders []string, k kind, now time.Time) (map[string][]orderclose.Release, error) {
	released := make(map[string][]orderclose.Release, len(orders))
	if t.lines == "" {
		return released, nil
	}
	for part := range slices.Chunk(orders, maxIn) {
		lines, unreadable, err := s.holdLines(tx, t, part)
		for _, bad := range unreadable {
			err = cmp.Or(err, bad)
		}
		if err == nil {
			lines, err = s.ownLines(tx, t, part, lines)
		}
		if err != nil {
			return nil, fmt.Errorf("read lines: %w", err)
		}
		in := insert{into: "stock_ledger (order_id, sku_id, kind, quantity, created_at)", rows: len(lines)}
		at := s.dialect.time(now)
		for _, l := range lines {
			switch {
			case l.quantity == 0: // a gift, or a line that was removed: the order holds nothing
				continue
			case l.quantity < 0:
				return nil, fmt.Errorf("order %q holds %d of SKU %q: fix its lines", l.order, l.quantity, l.sku)
			}
			in.row(l.order, l.sku, k, l.quantity, at)
			released[l.order] = append(released[l.order], orderclose.Release{SKU: l.sku, Quantity: l.quantity})
		}
		if err := in.exec(tx, s.dialect); err != nil {
			return nil, fmt.Errorf("write the ledger: %w", err)
		}
	}
	return released, nil
}

// holdLines locks the orders' lines and reads them. Another transaction may have replaced them while the SELECT that
// locks waited: with staleLocks a second SELECT looks, and new lines are locked too.
func (s *Store) holdLines(tx *gorm.DB, t *table, orders []string) (lines []line, unreadable map[string]error, err error) {
	lines, unreadable, err = readLines(tx, t.lockLines, s.q.args(orders))
	if err != nil || !s.dialect.staleLocks {
		return lines, unreadable, err
	}
	now, _, err := readLines(tx, t.lines, s.q.args(orders))
	if err != nil || slices.Equal(lines, now) {
		return lines, unreadable, err
	}
	return readLines(tx, t.lockLines, s.q.args(orders))
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
			return nil, fmt.Errorf("the lines of order %q belong to no order: write ids the same way in both tables", l.order)
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
	if s.q.months != nil && !mapping.IsPattern(s.q.m.Items.Table) { // one table has the lines of all months
		in = slices.Collect(maps.Values(s.q.months.list.Load().known))
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
		var found []string
		if err := tx.Raw(t.exists, s.q.args(part)).Scan(&found).Error; err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// readLines returns the lines of the orders, each SKU of an order once, sorted by order and
// SKU. unreadable has an error for each order with a quantity that is not a number, by id.
func readLines(tx *gorm.DB, query string, orders []any) (lines []line, unreadable map[string]error, err error) {
	lines = make([]line, 0, 2*len(orders))
	err = eachRow(tx, query, []any{orders}, func(rows *sql.Rows) error {
		var order string
		var sku, text sql.NullString
		if err := rows.Scan(&order, &sku, &text); err != nil || !sku.Valid { // no SKU: a fee or a line of text
			return err
		}
		quantity, err := strconv.ParseInt(text.String, 10, 64)
		if err != nil {
			if !text.Valid {
				text.String = "NULL"
			}
			if unreadable == nil {
				unreadable = map[string]error{}
			}
			unreadable[order] = fmt.Errorf("order %q has a line of SKU %q whose quantity is %s: fix its lines", order, sku.String, text.String)
			return nil
		}
		lines = append(lines, line{order: order, sku: sku.String, quantity: quantity})
		return nil
	})
	return sumLines(lines), unreadable, err
}

// moveStock moves released quantities from reserved to available, summed by SKU, in SKU
// order. It must be the last statement of its transaction. It fails as a whole if a SKU has
// no row, or less reserved than released. Without a mapped stock it does nothing: the owner
// of the stock reads the release from the event.
//
// spelt has the stock's spelling of SKUs that the lines spell otherwise. If it is nil and two SKUs may
// be one row of the stock, the error is a *spellingError.
func (s *Store) moveStock(tx *gorm.DB, released map[string][]orderclose.Release, spelt map[string]string) error {
	if s.q.m.Stock == nil {
		return nil
	}
	sums := map[string]int64{}
	for _, releases := range released {
		for _, r := range releases {
			sums[cmp.Or(spelt[r.SKU], r.SKU)] += r.Quantity
		}
	}
	skus := slices.SortedFunc(maps.Keys(sums), s.q.m.Stock.SKU.Compare)
	for part := range slices.Chunk(skus, maxIn) {
		args := make([]any, 0, 2*len(part))
		for _, sku := range part {
			args = append(args, s.q.skuArg(sku), sums[sku])
		}
		err := execRows(tx, len(part), s.dialect.ReleaseStock(s.q.m.Stock, len(part)), args)
		if _, fewer := errors.AsType[*rowsError](err); fewer && spelt == nil {
			if spelt, lookErr := s.spellings(tx, skus); lookErr != nil {
				return fmt.Errorf("read how the stock spells SKUs: %w", lookErr)
			} else if len(spelt) > 0 {
				return &spellingError{spelt}
			}
		}
		if err != nil {
			return fmt.Errorf("release the stock of SKUs %q to %q: a SKU is missing from the stock, or less is reserved than ordered, or available is NULL: %w",
				part[0], part[len(part)-1], err)
		}
	}
	return nil
}

// spellingError says that lines spell SKUs otherwise than the stock, so that two of them may be one row.
// The transaction is tried again with the stock's spelling.
type spellingError struct {
	spelt map[string]string // the stock's spelling, by the spelling of the lines
}

func (e *spellingError) Error() string { return "SKUs are not spelled as in the stock" }

// maxSpellings is the maximum number of SKUs in one query of spellings. SQLite unites at most 500
// SELECTs.
const maxSpellings = 400

// spellings returns the stock's spelling of each SKU that the stock finds by its collation
// and spells otherwise, such as ink for INK.
func (s *Store) spellings(tx *gorm.DB, skus []string) (map[string]string, error) {
	stock := s.q.m.Stock
	sku := mapping.Quote(stock.SKU.Column)
	one := "SELECT ?, " + sku + " FROM " + mapping.Quote(stock.Table) + s.dialect.hint(stock.SKU.Index) + " WHERE " + sku + " = ?"
	spelt := map[string]string{}
	for part := range slices.Chunk(skus, maxSpellings) {
		args := make([]any, 0, 2*len(part))
		for _, sku := range part {
			args = append(args, sku, s.q.skuArg(sku))
		}
		found, err := readAll(tx, one+strings.Repeat(" UNION ALL "+one, len(part)-1), args,
			func(s *struct{ written, is string }) []any { return []any{&s.written, &s.is} })
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if s.written != s.is {
				spelt[s.written] = s.is
			}
		}
	}
	return spelt, nil
}
