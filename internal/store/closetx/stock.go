package closetx

import (
	"cmp"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// KindClose is why a close releases stock. The table stock_ledger has no rows of closes: receipts.returned has what they returned. Of a mapping
// without stock a history calls it kindRelease: somebody who reads the event gives it back.
const KindClose, KindRelease = "close", "release"

// line is the quantity of one SKU that an order holds.
type line struct {
	Order, SKU string
	Quantity   int64
}

// Returns are the quantities that a close returns to the stock, by order and SKU. SKUs are spelled as in the lines.
type Returns map[string]map[string]int64

// returnLines locks the orders' lines, and adds what each of the orders returns, with the lines of one SKU summed, to returned and to moved.
func (s *Closer) returnLines(tx *gorm.DB, t *db.Table, orders []string, returned Returns, moved moves) error {
	for _, id := range orders {
		returned[id] = map[string]int64{}
	}
	if t.Lines == "" {
		return nil
	}
	for part := range slices.Chunk(orders, db.MaxIn) {
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
			if l.Quantity > 0 { // 0 is a gift, or a line that was removed: the order holds nothing
				returned[l.Order][l.SKU] = l.Quantity
			}
		}
	}
	return nil
}

// holdLines locks the orders' lines and reads them. Another transaction may have replaced them while the SELECT that
// locks waited: with Dialect.LocksOldRows a second SELECT looks, and new lines are locked too.
func (s *Closer) holdLines(tx *gorm.DB, t *db.Table, orders []string) (all [][]line, unreadable map[string]error, err error) {
	all, unreadable, err = s.ReadLines(tx, t.LockLines, orders)
	if db.HasCode(err, db.LockedCodes) {
		err = fmt.Errorf("%w: %w", errLinesLocked, err)
	}
	if err != nil || !s.Dialect.LocksOldRows {
		return all, unreadable, err
	}
	now, _, err := s.ReadLines(tx, t.CountedLines, orders)
	if err != nil || slices.EqualFunc(all, now, slices.Equal[[]line]) {
		return all, unreadable, err
	}
	return s.ReadLines(tx, t.LockLines, orders)
}

// sumLines sums the lines of one order and SKU, in place, and sorts by order and SKU.
func sumLines(lines []line) []line {
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(strings.Compare(a.Order, b.Order), strings.Compare(a.SKU, b.SKU))
	})
	n := 0
	for _, l := range lines {
		if n > 0 && lines[n-1].Order == l.Order && lines[n-1].SKU == l.SKU {
			lines[n-1].Quantity += l.Quantity
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
	if i := slices.IndexFunc(lines, func(l line) bool { return !asked[l.Order] }); i >= 0 {
		return because(orderclose.LinesWrong, "the lines of order %q belong to no order: write ids the same way in both tables", lines[i].Order)
	}
	return nil
}

// existing searches orders in a table by their ids, and returns those that it finds as their rows spell them.
// It locks nothing.
func (s *Closer) existing(tx *gorm.DB, t *db.Table, ids []string) (all []string, err error) {
	for part := range slices.Chunk(ids, db.MaxIn) {
		err := db.Searched(part, func(ids []string) error {
			var found []string
			err := tx.Raw(t.Exists, s.Q.Args(ids)).Scan(&found).Error
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
	s := c.S
	if err := c.awaitStockTurn(); err != nil {
		return err
	}
	waits, err := s.releaseWaits(c.Tx)
	if err != nil {
		return err
	}
	c.watched = c.watched || waits // then the rows are read before anyway, and most users of MySQL see no triggers
	until := time.Now().Add(stockWait)
	for i, stock := range s.Q.M.Stock {
		sums := moved[i]
		skus := slices.SortedFunc(maps.Keys(sums), compareStock(stock))
		for part := range slices.Chunk(skus, db.MaxIn) {
			args := make([]any, 0, 3*len(part))
			for _, sku := range part {
				args = append(append(args, stockArgs(stock, sku)...), sums[sku])
			}
			err := c.release(i, part, append(args, s.stockLockArgs(i, c.Now)...), until)
			if err != nil {
				return fmt.Errorf("release the stock of %d SKUs from %q in table %s: %w", len(part), part[0], stock.Table, err)
			}
		}
	}
	return nil
}

// ReadLines returns the lines of the orders, each SKU of an order once, sorted by order and SKU. all[0] has the SKUs
// of receipts, and the others the keys of further tables of stock. unreadable has an error for
// each order with a line that cannot be read, by id.
func (s *Closer) ReadLines(tx *gorm.DB, query string, orders []string) (all [][]line, unreadable map[string]error, err error) {
	keys := make([]sql.NullString, max(len(s.Q.M.Stock)-1, 0))
	var id, sku, text, location sql.NullString
	var count int64
	into := []any{&id, &sku, &text, &location}
	for i := range keys {
		into = append(into, &keys[i])
	}
	into = append(into, &count)
	for range 3 { // between reading and counting, another transaction may add a line
		all, unreadable = make([][]line, len(keys)+1), map[string]error{}
		all[0] = make([]line, 0, 2*len(orders))
		read, lines := int64(0), int64(-1)
		err = db.EachRow(tx, query, slices.Repeat(s.Q.LineArgs(orders), 2), func(rows *sql.Rows) error {
			switch err := rows.Scan(into...); {
			case err != nil:
				return err
			case !id.Valid:
				lines = count
				return nil
			}
			read++
			order := id.String
			quantity, err := strconv.ParseInt(text.String, 10, 64)
			switch {
			case !sku.Valid: // a fee or a line of text
				return nil
			case err != nil || quantity > maxPieces || quantity < -maxPieces:
				if !text.Valid {
					text.String = "NULL"
				}
				unreadable[order] = because(orderclose.LinesWrong, "order %q has a line of SKU %q whose quantity is %s: fix its lines", order, sku.String, text.String)
				return nil
			case s.Q.M.Items.Location != "" && !mapping.IsLocation(location.String):
				unreadable[order] = because(orderclose.LinesWrong, "order %q has a line of SKU %q whose location %q is empty or contains an @: fix its lines",
					order, sku.String, location.String)
				return nil
			case s.Q.M.Items.Location != "":
				sku.String = mapping.LocatedSKU(sku.String, location.String)
			}
			all[0] = append(all[0], line{order, sku.String, quantity})
			for i, key := range keys {
				if s.Q.M.Stock[i+1].Location.Column != "" {
					key.String = mapping.LocatedSKU(key.String, location.String)
				}
				if key.Valid {
					all[i+1] = append(all[i+1], line{order, key.String, quantity})
				}
			}
			return nil
		})
		for i := range all {
			all[i] = sumLines(all[i])
		}
		if err != nil || read == lines { //mutant:cut-lines-whole
			return all, unreadable, err
		}
		err = fmt.Errorf("%w: %w: the server says that %d orders have %d lines, and sent %d: look for a limit of rows in the server or in a proxy before it",
			orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, len(orders), max(lines, 0), read)
	}
	return all, unreadable, err
}

// moves are the quantities that a close returns to each of Mapping.Stock, by SKU.
type moves []map[string]int64

func (s *Closer) newMoves() moves {
	all := make(moves, len(s.Q.M.Stock))
	for i := range all {
		all[i] = map[string]int64{}
	}
	return all
}

// add adds a line to what returns to the i-th table.
func (s *Closer) add(to moves, i int, l line) {
	if i < len(to) && l.Quantity != 0 {
		to[i][s.stockSKU(i, l.SKU)] += l.Quantity //mutant:stock-returned-twice
	}
}

// stockSKU returns the key in the i-th table of a SKU of a line. If the table has no locations, those of lines are left
// out.
func (s *Closer) stockSKU(i int, sku string) string {
	if i == 0 && s.Q.M.Items.Location != "" && s.Q.M.Stock[0].Location.Column == "" {
		sku, _ = mapping.SplitSKU(sku)
	}
	return sku
}

// stockArgs returns the key of a row of the stock as arguments.
func stockArgs(s *mapping.Stock, sku string) (args []any) {
	location := ""
	if s.Location.Column != "" {
		sku, location = mapping.SplitSKU(sku)
	}
	for i, key := range []mapping.Key{s.SKU, s.Location} {
		text := []string{sku, location}[i]
		if key.Column == "" {
			continue
		}
		arg, ok := key.Arg(text)
		if !ok {
			arg = text // no row has this key, so the order fails
		}
		args = append(args, arg)
	}
	return args
}

// stockKey writes the condition on the key of a row of the stock, whose arguments are stockArgs, and the
// expression that reads the key.
func stockKey(s *mapping.Stock) (is string, read []string) {
	is, read = mapping.Quote(s.SKU.Column)+" = ?", []string{s.SKU.Read(s.SKU.Column), "NULL"}
	if s.Location.Column != "" {
		is, read[1] = "("+is+" AND "+mapping.Quote(s.Location.Column)+" = ?)", s.Location.Read(s.Location.Column)
	}
	return is, read
}

// Located returns the text of a key that stockKey reads.
func Located(sku string, location sql.NullString) string {
	if location.Valid {
		return mapping.LocatedSKU(sku, location.String)
	}
	return sku
}

// compareStock orders SKUs as the index on the key of the stock does, except for collations.
func compareStock(s *mapping.Stock) func(a, b string) int {
	if s.Location.Column == "" {
		return s.SKU.Compare
	}
	return func(a, b string) int {
		skuA, locationA := mapping.SplitSKU(a)
		skuB, locationB := mapping.SplitSKU(b)
		return cmp.Or(s.SKU.Compare(skuA, skuB), s.Location.Compare(locationA, locationB))
	}
}

// stockLockArgs returns the arguments of changeLock for the i-th table of stock.
func (s *Closer) stockLockArgs(i int, now time.Time) []any {
	if s.Q.M.Stock[i].Lock == nil {
		return nil
	}
	return []any{s.Q.StockLocks[i].Arg(now), s.Q.StockLocks[i].Arg(now)}
}
