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

	"orderclose"
	"orderclose/internal/tables"
)

// kind is why stock came back, or left for good, the last part of the ledger's
// key.
type kind string

const (
	kindClose  kind = "close"
	kindCancel kind = "cancel"
	kindShip   kind = "ship"
)

// line is a quantity of one SKU that an order holds.
type line struct {
	order, sku string
	quantity   int64
}

// recordLines is recordLinesOf of the one table that a mapping without shards has.
func (s *Store) recordLines(tx *gorm.DB, orders []string, k kind, now time.Time) (map[string][]orderclose.Release, error) {
	return s.recordLinesOf(tx, s.q.whole, orders, k, now)
}

// recordLinesOf writes the ledger rows of the orders' lines, those of one SKU
// summed, and returns what each order gives back, in SKU order and without the
// releases' keys. The ledger's key makes sure that it is given back once. SKUs are
// spelt as in the lines, or as in the stock where that was seen to differ.
func (s *Store) recordLinesOf(tx *gorm.DB, t *table, orders []string, k kind, now time.Time) (map[string][]orderclose.Release, error) {
	released := make(map[string][]orderclose.Release, len(orders))
	if t.lines == "" {
		return released, nil
	}
	for part := range slices.Chunk(orders, maxIn) {
		lines, unreadable, err := readLines(tx, t.lines, s.q.args(part))
		for _, bad := range unreadable {
			err = cmp.Or(err, bad)
		}
		if err == nil {
			lines, err = s.theirs(tx, t, part, lines)
		}
		if err == nil {
			lines, err = s.asInStock(tx, lines)
		}
		if err != nil {
			return nil, fmt.Errorf("read lines: %w", err)
		}
		in := insert{into: "stock_ledger (order_id, sku_id, kind, quantity, created_at)", rows: len(lines)}
		at := s.dialect.time(now)
		for _, l := range lines {
			switch {
			case l.quantity == 0: // a gift, or a line that was taken back: nothing is held
				continue
			case l.quantity < 0:
				return nil, fmt.Errorf("order %q holds %d of SKU %q: mend its lines", l.order, l.quantity, l.sku)
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

// sumLines adds up those of one order and SKU, in place, and sorts them by both.
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

// theirs returns the lines that are of the orders. By the collation of a shop's own
// tables the database may find more, such as those of the order aB for Ab. Of an order
// that there is they are none of ours; of one that there is not they are of the one
// that is spelt alike.
func (s *Store) theirs(tx *gorm.DB, t *table, orders []string, lines []line) ([]line, error) {
	asked := make(map[string]bool, len(orders))
	for _, id := range orders {
		asked[id] = true
	}
	strays := map[string]string{} // by id as the lines have it: whose they are
	for _, l := range lines {
		if !asked[l.order] {
			strays[l.order] = ""
		}
	}
	if len(strays) == 0 {
		return lines, nil
	}
	others, err := s.present(tx, t, slices.Sorted(maps.Keys(strays)))
	if err != nil {
		return nil, err
	}
	for stray := range strays {
		for _, id := range orders {
			if others[stray] || !strings.EqualFold(strings.TrimRight(stray, " "), strings.TrimRight(id, " ")) {
				continue
			}
			if strays[stray] != "" {
				return nil, fmt.Errorf("the lines of %q may be of %q or of %q: write their ids alike in both tables", stray, strays[stray], id)
			}
			strays[stray] = id
		}
		if strays[stray] == "" && !others[stray] {
			return nil, fmt.Errorf("lines of %q were found, and there is no such order: write ids alike in both tables", stray)
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

// present returns which of the ids are those of orders, letter for letter, as far as
// their lines are in the table's.
func (s *Store) present(tx *gorm.DB, t *table, ids []string) (map[string]bool, error) {
	present := make(map[string]bool, len(ids))
	in := []*table{t}
	if s.q.months != nil && !tables.IsPattern(s.q.m.Items.Table) { // lines of all months
		known, _ := s.q.months.now(time.Now())
		in = slices.Collect(maps.Values(known))
	}
	id := tables.Quote(s.q.m.ID.Column)
	for _, t := range in {
		for part := range slices.Chunk(ids, maxIn) {
			err := eachRow(tx, "SELECT "+id+" FROM "+tables.Quote(t.name)+" WHERE "+id+" IN ?", []any{s.q.args(part)}, func(rows *sql.Rows) error {
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

// readLines returns what the orders hold, each SKU of an order once, sorted by both. For
// an order with a line whose quantity is no number, unreadable has an error by its id.
func readLines(tx *gorm.DB, query string, orders []any) (lines []line, unreadable map[string]error, err error) {
	lines = make([]line, 0, 2*len(orders))
	err = eachRow(tx, query, []any{orders}, func(rows *sql.Rows) error {
		var order string
		var sku, text sql.NullString
		if err := rows.Scan(&order, &sku, &text); err != nil || !sku.Valid { // a fee, or a line of text: nothing that is in stock
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
			unreadable[order] = fmt.Errorf("order %q has a line of SKU %q whose quantity is %s: mend its lines", order, sku.String, text.String)
			return nil
		}
		lines = append(lines, line{order: order, sku: sku.String, quantity: quantity})
		return nil
	})
	return sumLines(lines), unreadable, err
}

// moveStock moves what orders release from reserved to available, summed by SKU,
// in SKU order. It must be the last statement of its transaction. A SKU that has
// no row, or less reserved than is to come back, fails all of it. Without a mapped
// stock nothing moves: whoever keeps it takes the release from the event.
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
		err := execRows(tx, len(part), s.dialect.giveBack(s.q.m.Stock, len(part)), args)
		if _, fewer := errors.AsType[*rowsError](err); fewer && !s.respell.Load() {
			if spelt, lookErr := s.spellings(tx, part); lookErr != nil {
				return fmt.Errorf("look at how the stock spells SKUs: %w", lookErr)
			} else if oneRowTwice(part, spelt) {
				s.respell.Store(true)
				return fmt.Errorf("%w: %w", errSpelling, err)
			}
		}
		if err != nil {
			return fmt.Errorf("give back the stock of %q to %q: is a SKU missing from the stock, or less reserved than ordered, or what is available NULL? %w",
				part[0], part[len(part)-1], err)
		}
	}
	return nil
}

// errSpelling says that lines spell a SKU in several ways that the stock takes for
// one. The transaction is done again, and spells them as the stock does.
var errSpelling = errors.New("SKUs are not spelt as in the stock")

// spellings returns how the stock spells the SKUs that it finds by its collation and
// that are written otherwise, such as ink for INK.
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

// oneRowTwice tells whether two of the SKUs are of one row of the stock.
func oneRowTwice(skus []string, spelt map[string]string) bool {
	rows := make(map[string]bool, len(skus))
	for _, sku := range skus {
		rows[cmp.Or(spelt[sku], sku)] = true
	}
	return len(rows) < len(skus)
}

// asInStock spells the lines' SKUs as the stock does, once it is known that they may
// differ: most shops shall not pay for the look.
func (s *Store) asInStock(tx *gorm.DB, lines []line) ([]line, error) {
	if !s.respell.Load() {
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
