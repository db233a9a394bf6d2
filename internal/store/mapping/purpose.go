package mapping

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/orderclose/orderclose/internal/store/migrations"
)

// purpose is one use of a column by a mapping.
type purpose struct {
	path   string // the key under orders in topics.yaml
	table  string
	column string
	is     string // what the column must hold, in words
	effect string // what a close does to the column; empty: a close only reads the column
	// optional says that the mapping works without the key.
	optional bool
}

// purposes lists the uses of columns, for tables with these names.
func (m *Mapping) purposes(orders, items, stock string) []purpose {
	all := []purpose{
		{path: "id.column", table: orders, column: m.ID.Column, is: "the order's id"},
		{path: "status.column", table: orders, column: m.Status.Column, is: "the order's status", effect: "a close writes the closed status to it"},
		{path: "created.column", table: orders, column: m.Created.Name(), is: "when the order was created", optional: true},
		{path: "due.column", table: orders, column: m.Due.Column, is: "when the order is due"},
		{path: "category", table: orders, column: m.Category, is: "the order's category", optional: true},
		{path: "lock", table: orders, column: m.Version, is: "the order's version", effect: "a close adds one to it", optional: true},
		{path: "payment_id", table: orders, column: m.PaymentID, is: "the payment that paid the order", effect: "a payment writes its id to it", optional: true},
		{path: "lock.column", table: orders, column: m.Lock.Name(), is: "the time of the order's last change",
			effect: "each close and payment writes its own time to it", optional: true},
	}
	constants := func(path, table, is, effect string, columns []ColumnValue) {
		for _, c := range columns {
			all = append(all, purpose{path: path + c.Column, table: table, column: c.Column, is: is, effect: effect, optional: true})
		}
	}
	for i, t := range m.ClosedAt {
		all = append(all, purpose{path: ListPath("closed_at", i) + ".column", table: orders, column: t.Column, is: "when the order was closed",
			effect: "a close writes its own time to it", optional: true})
	}
	constants("set.", orders, "a constant of a closed order", "a close writes a constant to it", m.Set)
	constants("set_paid.", orders, "a constant of a paid order", "a payment writes a constant to it", m.SetPaid)
	conditions := func(path, table, is string, columns []Condition) {
		for _, c := range columns {
			all = append(all, purpose{path: path + c.Column, table: table, column: c.Column, is: is, optional: true})
		}
	}
	conditions("where.", orders, "a condition of a close", m.Where)
	if i := m.Items; i != nil {
		all = append(all,
			purpose{path: "items.order", table: items, column: i.Order, is: "the order of a line"},
			purpose{path: "items.sku", table: items, column: i.SKU, is: "the SKU of a line"},
			purpose{path: "items.quantity", table: items, column: i.Quantity, is: "the quantity of a line"},
			purpose{path: "items.location", table: items, column: i.Location, is: "the location of a line", optional: true},
		)
		conditions("items.where.", items, "a condition of a line", i.Where)
	}
	for i, s := range m.Stock {
		path, table := StockPath(i), stock
		if i > 0 && stock != "" {
			table = s.Table
		}
		all = append(all,
			purpose{path: path + ".sku.column", table: table, column: s.SKU.Column, is: "the SKU"},
			purpose{path: path + ".location.column", table: table, column: s.Location.Column, is: "the location of stock"},
			purpose{path: path + ".available", table: table, column: s.Available, is: "the quantity of a SKU that can be sold",
				effect: "a close adds the quantity of the order to it"},
			purpose{path: path + ".reserved", table: table, column: s.Reserved, is: "the quantity of a SKU that orders hold",
				effect: "a close takes the quantity of the order from it", optional: true},
			purpose{path: path + ".lock", table: table, column: s.Version, is: "the version of the row", effect: "a close adds one to it", optional: true},
			purpose{path: path + ".lock.column", table: table, column: s.Lock.Name(), is: "the time of the row's last change",
				effect: "a close writes its own time to it", optional: true},
		)
	}
	return slices.DeleteFunc(all, func(p purpose) bool { return p.column == "" || m.ByRule && p.path == "due.column" })
}

// onePurposeEach checks that each column has one purpose. Lines may be in the table of orders,
// one in the row of each order: then the order's id is also the order of the line.
func (c *checker) onePurposeEach(all []purpose) {
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.table == b.table && strings.EqualFold(a.column, b.column) && !mayShare(a, b) {
				c.shared(a, b)
			}
		}
	}
}

func mayShare(a, b purpose) bool {
	if a.path == "id.column" && (b.path == "items.order" || strings.HasPrefix(b.path, "where.")) || // single orders are excluded by their ids
		strings.HasPrefix(a.path, "set.") && strings.HasPrefix(b.path, "set_paid.") {
		return true
	}
	return a.effect == "" && b.effect == "" && (a.path == "category" || b.path == "category") //mutant:shared-column-written
}

// shared reports a column with two purposes, at the key that is more likely wrong. If a close writes
// one of the columns, that is its key. Otherwise it is the later key.
func (c *checker) shared(a, b purpose) {
	wrong, right := b, a
	if b.effect == "" && a.effect != "" && a.path != "status.column" {
		wrong, right = a, b
	}
	if slices.ContainsFunc(c.problems, func(p Problem) bool { return p.Path == wrong.path }) {
		return
	}
	why := "one column cannot hold both"
	switch {
	case wrong.effect != "":
		why = wrong.effect + ", which destroys " + right.is
	case right.effect != "":
		why = right.effect + ", which destroys " + wrong.is
	case right.path == "created.column" && wrong.path == "due.column":
		why = "every order would be due when it is created"
	case wrong.path == "items.quantity":
		why = "a close would release as many pieces as " + right.is + " says"
	}
	c.reportHarm(wrong.path, fmt.Sprintf("column %s.%s is mapped as %s and as %s", wrong.table, wrong.column, right.is, wrong.is), why, wrong.fix())
}

// fix returns what to do if p is mapped to the wrong column.
func (p purpose) fix() string {
	do := "map the column that holds " + p.is
	if p.optional {
		do += ", or remove " + strings.TrimSuffix(p.path, ".column")
	}
	return do
}

// ownTables are the tables that orderclose creates beside the shop's tables, and writes itself. They have the same names in each
// database.
var ownTables = sync.OnceValue(func() (names []string) {
	steps, _ := migrations.Steps(migrations.Files, "mysql", true) // embedded files are always read
	for _, step := range steps {
		names = append(names, step.Creates()...)
	}
	return names
})

// OwnTables returns the names of the tables that orderclose creates beside the shop's tables.
func OwnTables() []string { return slices.Clone(ownTables()) }

// isOwnTable reports whether a table is one of them, in any case: some servers ignore it.
func isOwnTable(table string) bool { return slices.Contains(ownTables(), strings.ToLower(table)) }

// refuseOwnTable reports a table that is one of orderclose's own tables.
func (c *checker) refuseOwnTable(path, table string) {
	if isOwnTable(table) {
		c.reportHarm(path, "table "+table+" is one of orderclose's own tables", "orderclose and the shop would both write to it", "name the shop's own table")
	}
}

// tables returns the names of the tables of lines and of the stock; empty: it is not mapped.
func (m *Mapping) tables() (items, stock string) {
	if m.Items != nil {
		items = m.Items.Table
	}
	if len(m.Stock) > 0 {
		stock = m.Stock[0].Table
	}
	return items, stock
}

// stockApart checks that the stock has a table of its own.
func (c *checker) stockApart(path, orders, items, stock string) {
	for _, other := range []struct{ name, holds string }{{orders, "orders"}, {items, "lines of orders"}} {
		if stock == other.name && stock != "" {
			c.reportHarm(path, "table "+stock+" is mapped as the stock and as "+other.holds,
				"a close would add quantities to rows that are not stock", "name the table that has one row for each SKU, or write stock: none")
			return
		}
	}
}
