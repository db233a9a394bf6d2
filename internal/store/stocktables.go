package store

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// lines writes the SELECT of lines in two parts, of which the second begins with FROM: order, SKU, quantity, location, and the keys of further
// tables of stock.
func (q *statements) lines(from string) (list, of string) {
	i := q.m.Items
	columns := []string{q.m.ID.Read(i.Order), mapping.Key{}.Read(i.SKU), mapping.Quote(i.Quantity), orElse(i.Location, "NULL")}
	for n, s := range q.m.Stock {
		if read := s.SKU.Read(q.m.LineKey(s)); n == 0 {
			columns[1] = read
		} else {
			columns = append(columns, read)
		}
	}
	for n := range columns { // counted needs different names
		columns[n] += " AS c" + strconv.Itoa(n)
	}
	where := ""
	if q.lineWhere.sql != "" {
		where = " AND " + q.lineWhere.sql
	}
	return "SELECT " + strings.Join(columns, ", "),
		fmt.Sprintf(" FROM %s%s WHERE %s IN ?%s", mapping.Quote(from), q.d.hint(i.Index), mapping.Quote(i.Order), where)
}

// counted adds one row to a SELECT of lines, whose last column is how many lines there are: a server, or a proxy before it, may cut an answer
// without a word. Its arguments are lineArgs, twice. With COUNT(*), for which the index is enough, MariaDB may read the whole index.
func (q *statements) counted(lines, of string) string {
	return "SELECT v.*, 0 FROM (" + lines + ") AS v UNION ALL SELECT " + strings.Repeat("NULL, ", 4+max(len(q.m.Stock)-1, 0)) +
		"COUNT(CASE WHEN " + mapping.Quote(q.m.Items.Quantity) + " IS NULL THEN 1 ELSE 1 END)" + of
}

// lineArgs returns the arguments of table.lines.
func (q *statements) lineArgs(ids []string) []any {
	return append([]any{q.args(ids)}, q.lineWhere.args...)
}

// readLines returns the lines of the orders, each SKU of an order once, sorted by order and SKU. all[0] has the SKUs
// of receipts, and the others the keys of further tables of stock. unreadable has an error for
// each order with a line that cannot be read, by id.
func (s *Store) readLines(tx *gorm.DB, query string, orders []string) (all [][]line, unreadable map[string]error, err error) {
	keys := make([]sql.NullString, max(len(s.q.m.Stock)-1, 0))
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
		err = eachRow(tx, query, slices.Repeat(s.q.lineArgs(orders), 2), func(rows *sql.Rows) error {
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
			case s.q.m.Items.Location != "" && !mapping.IsLocation(location.String):
				unreadable[order] = because(orderclose.LinesWrong, "order %q has a line of SKU %q whose location %q is empty or contains an @: fix its lines",
					order, sku.String, location.String)
				return nil
			case s.q.m.Items.Location != "":
				sku.String = mapping.LocatedSKU(sku.String, location.String)
			}
			all[0] = append(all[0], line{order, sku.String, quantity})
			for i, key := range keys {
				if s.q.m.Stock[i+1].Location.Column != "" {
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

func (s *Store) newMoves() moves {
	all := make(moves, len(s.q.m.Stock))
	for i := range all {
		all[i] = map[string]int64{}
	}
	return all
}

// add adds a line to what returns to the i-th table.
func (s *Store) add(to moves, i int, l line) {
	if i < len(to) && l.quantity != 0 {
		to[i][s.q.stockSKU(i, l.sku)] += l.quantity //mutant:stock-returned-twice
	}
}

// stockSKU returns the key in the i-th table of a SKU of a line. If the table has no locations, those of lines are left
// out.
func (q *statements) stockSKU(i int, sku string) string {
	if i == 0 && q.m.Items.Location != "" && q.m.Stock[0].Location.Column == "" {
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

// located returns the text of a key that stockKey reads.
func located(sku string, location sql.NullString) string {
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
func (q *statements) stockLockArgs(i int, now time.Time) []any {
	if q.m.Stock[i].Lock == nil {
		return nil
	}
	return []any{q.stockLocks[i].Arg(now), q.stockLocks[i].Arg(now)}
}

// changeLock writes the assignments, behind others, of the columns by which the shop's code locks a row
// optimistically: that code reads the row, and later writes it only if the column has the same value. A number
// grows by one. A time becomes the present, or one step of the column more than it was: in one second two
// changes may have one present. row is the prefix of the columns that are read. Its arguments are lockArgs.
func changeLock(row, version string, lock *mapping.TimeColumn) (set string) {
	if version != "" {
		set = fmt.Sprintf(", %s = COALESCE(%s%[1]s, 0) + 1", mapping.Quote(version), row)
	}
	if lock != nil {
		set += fmt.Sprintf(", %s = CASE WHEN %s%[1]s >= ? THEN %[2]s%[1]s + %[3]s ELSE ? END", mapping.Quote(lock.Column), row, lockStep(lock))
	}
	return set
}

// lockStep writes the smallest difference of two values of a column, as all servers take it. SQLite takes that of
// unix times only.
func lockStep(lock *mapping.TimeColumn) string {
	if lock.Type == mapping.UnixSeconds || lock.Type == mapping.UnixMillis {
		return "1"
	}
	return fmt.Sprintf("INTERVAL '%s' SECOND",
		map[mapping.Precision]string{mapping.Seconds: "1", mapping.Millis: "0.001", mapping.Micros: "0.000001"}[lock.Precision])
}

// lockArgs returns the arguments of changeLock for an order.
func (q *statements) lockArgs(now time.Time) []any {
	if q.m.Lock == nil {
		return nil
	}
	return []any{q.lock.Arg(now), q.lock.Arg(now)}
}
