package closetx

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// InnoDB locks an entry of an index apart from its row. An INSERT … SELECT over an index on status and due time locks entries and no row, and a
// SELECT … FOR UPDATE locks the entry first and then waits for the row. A close that changes such an entry would wait in the queue while it
// holds rows, and be part of a deadlock in the second case. So it locks the entries as it locks rows, without those that others lock: on MySQL
// always, and on MariaDB after an UPDATE has failed, which fails there at once.

// entries lock the entries of rows in the indexes of a table whose columns a close changes. The rows are locked already.
type entries struct {
	from string            // the part of a SELECT from FROM on; empty: there is no such index
	key  *strings.Replacer // qualifies the columns of the key
	told string            // the indexes, for a message
}

// entryCache has the entries of tables by name. They are forgotten when a close has waited in vain: an index may be new.
type entryCache struct{ sync.Map }

// loadEntries reads the indexes of tables that are not known yet. A transaction would hold its locks meanwhile. Without an answer no entry is
// locked.
func (s *Closer) loadEntries(ctx context.Context, in []*db.Table) {
	if !s.Dialect.EntryLocks {
		return
	}
	load := func(name string, written []string, keys ...mapping.Key) {
		if _, known := s.entries.Load(name); known || ctx.Err() != nil {
			return
		}
		tables, err := s.Describe(ctx, name)
		if table, found := tables[name]; err == nil && found {
			s.entries.Store(name, entriesOf(s.Dialect, name, table, written, keys))
		}
	}
	for _, t := range in {
		load(t.Name, s.WrittenOfOrders(), s.Q.M.ID)
	}
	for _, stock := range s.Q.M.Stock {
		load(stock.Table, []string{stock.Available, stock.Reserved, stock.Version, stock.Lock.Name()}, stock.SKU, stock.Location)
	}
}

// of returns the entries of a table, and false if there are none to lock.
func (e *entryCache) of(name string) (entries, bool) {
	known, ok := e.Load(name)
	if !ok || known.(entries).from == "" {
		return entries{}, false
	}
	return known.(entries), true
}

// entriesOf joins each row of a table, found by the first of the keys, with its entries in other indexes than that of the key and the primary
// key. Both servers find an entry by its columns and the primary key, which InnoDB appends. An index on an expression, or on a prefix of a column,
// is left out: MariaDB would read many entries for one row. Pure.
func entriesOf(d db.Dialect, name string, t mapping.Table, written []string, keys []mapping.Key) (e entries) {
	primary := []string{strings.ToLower(keys[0].Column)}
	for _, index := range t.Indexes {
		if index.Name == "PRIMARY" {
			primary = bareColumns(index)
		}
	}
	var names []string
	from := " FROM " + mapping.Quote(name) + " AS k" + d.Hint(keys[0].Index)
	for _, index := range t.Indexes {
		columns := bareColumns(index)
		changed := slices.ContainsFunc(columns, func(c string) bool {
			is := func(name string) bool { return strings.EqualFold(name, c) }
			return slices.ContainsFunc(written, is) || t.Columns[c].OnUpdate || t.Columns[c].Generated
		})
		part := slices.ContainsFunc(columns, func(c string) bool { return c == "" || strings.Contains(c, "(") })
		if index.Name == "PRIMARY" || strings.EqualFold(index.Name, keys[0].Index) || part || !changed {
			continue
		}
		alias := fmt.Sprintf("e%d", len(names))
		var on []string
		for _, c := range append(columns, primary...) {
			if same := alias + "." + mapping.Quote(c) + " <=> k." + mapping.Quote(c); !slices.Contains(on, same) {
				on = append(on, same)
			}
		}
		from += " STRAIGHT_JOIN " + mapping.Quote(name) + " AS " + alias + d.Hint(index.Name) + " ON " + strings.Join(on, " AND ")
		names = append(names, index.Name)
	}
	if len(names) == 0 {
		return e
	}
	var qualified []string
	for _, key := range keys {
		if key.Column != "" {
			qualified = append(qualified, mapping.Quote(key.Column), "k."+mapping.Quote(key.Column))
		}
	}
	return entries{from, strings.NewReplacer(qualified...), strings.Join(names, ", ")}
}

// bareColumns returns the columns of an index without their order.
func bareColumns(i mapping.Index) (all []string) {
	for _, c := range i.Columns {
		all = append(all, strings.TrimSuffix(c, " DESC"))
	}
	return all
}

// lock locks the entries of rows, without those that other transactions lock. each gets a key of a row whose entries it has locked, as read
// reads it.
func (e entries) lock(tx *gorm.DB, d db.Dialect, read, where string, args []any, each func(*sql.Rows) error) error {
	return db.EachRow(tx, "SELECT "+e.key.Replace(read)+e.from+" WHERE "+e.key.Replace(where)+d.SkipLocked, args, each)
}

// lockEntries locks the entries of the orders in c.won, and leaves out the orders with an entry that another transaction locks.
func (c *closing) lockEntries() error {
	key := c.S.Q.M.ID
	for _, t := range sorted(c.won) {
		e, ok := c.S.entries.of(t.Name)
		if !ok {
			continue
		}
		free := make(map[string]bool, len(c.won[t]))
		for part := range slices.Chunk(c.won[t], db.MaxIn) {
			err := e.lock(c.Tx, c.S.Dialect, key.Read(key.Column), mapping.Quote(key.Column)+" IN ?", []any{c.S.Q.Args(part)}, func(rows *sql.Rows) error {
				var id string
				err := rows.Scan(&id)
				free[id] = true
				return err
			})
			if err != nil {
				return err
			}
		}
		for _, id := range c.won[t] {
			if !free[id] {
				c.Contended[id] = fmt.Errorf("%w: another transaction locks an entry of the order in an index of table %s that a close changes (%s), "+
					"perhaps an INSERT … SELECT or a SELECT with a lock that reads this index", orderclose.ErrContended, t.Name, e.told)
			}
		}
	}
	c.leaveContended()
	return nil
}

// withEntries leaves out of rows of stock, which are locked, those with an entry that another transaction locks.
func (s *Closer) withEntries(tx *gorm.DB, stock *mapping.Stock, skus []string, rows map[string]quantities) (map[string]quantities, error) {
	e, ok := s.entries.of(stock.Table)
	if !ok || len(rows) == 0 {
		return rows, nil
	}
	is, read, args := stockKeys(stock, skus)
	free := make(map[string]quantities, len(rows))
	return free, e.lock(tx, s.Dialect, strings.Join(read, ", "), is, args, func(found *sql.Rows) error {
		var sku string
		var location sql.NullString
		err := found.Scan(&sku, &location)
		sku = Located(sku, location)
		if row, locked := rows[sku]; locked {
			free[sku] = row
		}
		return err
	})
}
