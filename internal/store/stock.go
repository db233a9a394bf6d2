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
// ledger's unique key ensures that stock is released once. SKUs are spelled as in the lines, or as in
// the stock once a difference was seen.
func (s *Store) recordLines(tx *gorm.DB, t *table, orders []string, k kind, now time.Time) (map[string][]orderclose.Release, error) {
	released := make(map[string][]orderclose.Release, len(orders))
	if t.lines == "" {
		return released, nil
	}
	for part := range slices.Chunk(orders, maxIn) {
		lines, unreadable, err := readLines(tx, t.lockLines, s.q.args(part))
		for _, bad := range unreadable {
			err = cmp.Or(err, bad)
		}
		if err == nil {
			lines, err = s.ownLines(tx, t, part, lines)
		}
		if err == nil {
			lines, err = s.spelledAsStock(tx, lines)
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
		if err := in.exec(tx); err != nil {
			return nil, fmt.Errorf("write the ledger: %w", err)
		}
	}
	return released, nil
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

// ownLines returns the lines of the given orders. The database compares ids by the collation of
// the shop's table of lines. So for order Ab it may also return lines with the id aB. If an order
// aB exists, ownLines drops these lines. If not, they belong to order Ab. The error names ids
// that could belong to several orders, or to none.
func (s *Store) ownLines(tx *gorm.DB, t *table, orders []string, lines []line) ([]line, error) {
	asked := make(map[string]bool, len(orders))
	for _, id := range orders {
		asked[id] = true
	}
	strays := map[string]string{} // from an id in the lines to the order that owns the lines
	for _, l := range lines {
		if !asked[l.order] {
			strays[l.order] = ""
		}
	}
	if len(strays) == 0 {
		return lines, nil
	}
	others, err := s.existing(tx, t, slices.Sorted(maps.Keys(strays)))
	if err != nil {
		return nil, err
	}
	for stray := range strays {
		for _, id := range orders {
			if others[stray] || !strings.EqualFold(strings.TrimRight(stray, " "), strings.TrimRight(id, " ")) {
				continue
			}
			if strays[stray] != "" {
				return nil, fmt.Errorf("the lines of order %q belong to order %q or to order %q: write ids the same way in both tables", stray, strays[stray], id)
			}
			strays[stray] = id
		}
		if strays[stray] == "" && !others[stray] {
			return nil, fmt.Errorf("the lines of order %q belong to no order: write ids the same way in both tables", stray)
		}
	}
	var ours []line
	for _, l := range lines {
		if !asked[l.order] {
			if l.order = strays[l.order]; l.order == "" {
				continue
			}
		}
		ours = append(ours, l)
	}
	return sumLines(ours), nil
}

// existing returns which of the ids exist as orders, compared exactly. It searches the tables
// whose lines may be in the table of lines of t.
func (s *Store) existing(tx *gorm.DB, t *table, ids []string) (map[string]bool, error) {
	present := make(map[string]bool, len(ids))
	in := []*table{t}
	if s.q.months != nil && !mapping.IsPattern(s.q.m.Items.Table) { // one table has the lines of all months
		known, _ := s.q.months.cached(time.Now())
		in = slices.Collect(maps.Values(known))
	}
	id := mapping.Quote(s.q.m.ID.Column)
	for _, t := range in {
		for part := range slices.Chunk(ids, maxIn) {
			err := eachRow(tx, "SELECT "+id+" FROM "+mapping.Quote(t.name)+" WHERE "+id+" IN ?", []any{s.q.args(part)}, func(rows *sql.Rows) error {
				var found string
				err := rows.Scan(&found)
				present[found] = true
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return present, nil
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
func (s *Store) moveStock(tx *gorm.DB, released map[string][]orderclose.Release) error {
	if s.q.m.Stock == nil {
		return nil
	}
	sums := map[string]int64{}
	for _, releases := range released {
		for _, r := range releases {
			sums[r.SKU] += r.Quantity
		}
	}
	skus := slices.SortedFunc(maps.Keys(sums), s.q.m.Stock.SKU.Compare)
	for part := range slices.Chunk(skus, maxIn) {
		args := make([]any, 0, 2*len(part))
		for _, sku := range part {
			args = append(args, s.q.skuArg(sku), sums[sku])
		}
		err := execRows(tx, len(part), s.dialect.releaseStock(s.q.m.Stock, len(part)), args)
		if _, fewer := errors.AsType[*rowsError](err); fewer && !s.spellingsDiffer.Load() {
			if spelt, lookErr := s.spellings(tx, part); lookErr != nil {
				return fmt.Errorf("read how the stock spells SKUs: %w", lookErr)
			} else if oneRowTwice(part, spelt) {
				s.spellingsDiffer.Store(true)
				return fmt.Errorf("%w: %w", errSpelling, err)
			}
		}
		if err != nil {
			return fmt.Errorf("release the stock of SKUs %q to %q: a SKU is missing from the stock, or less is reserved than ordered, or available is NULL: %w",
				part[0], part[len(part)-1], err)
		}
	}
	return nil
}

// errSpelling says that lines spell a SKU in several ways that are one row of the stock. The
// transaction is tried again and spells SKUs as the stock does.
var errSpelling = errors.New("SKUs are not spelled as in the stock")

// spellings returns the stock's spelling of each SKU that the stock finds by its collation
// and spells otherwise, such as ink for INK.
func (s *Store) spellings(tx *gorm.DB, skus []string) (map[string]string, error) {
	spelt := map[string]string{}
	for part := range slices.Chunk(skus, maxIn) {
		args := make([]any, len(part))
		for i, sku := range part {
			args[i] = s.q.skuArg(sku)
		}
		err := eachRow(tx, s.dialect.spellings(s.q.m.Stock, len(part)), args, func(rows *sql.Rows) error {
			var written, is string
			err := rows.Scan(&written, &is)
			if written != is {
				spelt[written] = is
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return spelt, nil
}

// oneRowTwice reports whether two of the SKUs are one row of the stock.
func oneRowTwice(skus []string, spelt map[string]string) bool {
	rows := make(map[string]bool, len(skus))
	for _, sku := range skus {
		rows[cmp.Or(spelt[sku], sku)] = true
	}
	return len(rows) < len(skus)
}

// spelledAsStock spells the lines' SKUs as the stock does, once a difference was seen. Most shops
// have none and need not pay for the query.
func (s *Store) spelledAsStock(tx *gorm.DB, lines []line) ([]line, error) {
	if !s.spellingsDiffer.Load() {
		return lines, nil
	}
	skus := make([]string, len(lines))
	for i, l := range lines {
		skus[i] = l.sku
	}
	slices.Sort(skus)
	spelt, err := s.spellings(tx, slices.Compact(skus))
	if err != nil || len(spelt) == 0 {
		return lines, err
	}
	for i, l := range lines {
		lines[i].sku = cmp.Or(spelt[l.sku], l.sku)
	}
	return sumLines(lines), nil
}
