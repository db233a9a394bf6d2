package mapping

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose"
)

// CheckDatabase returns the problems of a mapping on the tables of a database: what keeps it
// from working, and what harm a close would do. orders and items are the names of the tables of
// orders and of lines. A mapping with shards has one of each for each month that is read. A table
// that schema does not have is a problem.
func (m *Mapping) CheckDatabase(schema Schema, orders, items []string) []Problem {
	var d databaseChecker
	for _, name := range orders {
		d.orders(m, name, schema)
	}
	if m.Items != nil {
		for _, name := range items {
			d.items(m, name, schema)
		}
	}
	for i, s := range m.Stock {
		d.stock(StockPath(i), s, schema)
	}
	d.distinct(m, schema, orders, items)
	d.collations(m, schema, orders, items)
	if d.table.Postgres {
		for i, p := range d.problems {
			d.problems[i].Fix = forPostgres.Replace(p.Fix)
		}
	}
	return m.Unaccepted(d.problems)
}

// forPostgres writes the SQL of a fix as PostgreSQL takes it.
var forPostgres = strings.NewReplacer("`", `"`, " AS SIGNED)", " AS bigint)")

// databaseChecker checks one table after the other. selectTable selects the table that the other
// methods check.
type databaseChecker struct {
	checker
	name  string // of the selected table, as the mapping writes it
	table Table  // the selected table
}

func (d *databaseChecker) orders(m *Mapping, name string, schema Schema) {
	if !d.selectTable("table", name, schema) {
		return
	}
	d.key("id.column", m.ID.Column, m.ID.Type)
	d.needUniqueIndex("id.index", m.ID)
	d.status(m.Status)
	for _, t := range m.TimeColumns() {
		d.timeColumn(t.Path, t.TimeColumn)
	}
	d.writableTimes(m)
	d.writable("status.column", m.Status.Column, m.ID.Column, "")
	d.optional("category", m.Category)
	if c, ok := d.optional("lock", m.Version); ok && d.writable("lock", m.Version, m.ID.Column, "lock") {
		d.counter("lock", m.Version, c)
	}
	d.paymentID(m.PaymentID)
	d.apartFromDue(m)
	for _, a := range m.Set {
		d.assignment("set."+a.Column, a, m.ID.Column)
	}
	for _, a := range m.SetPaid {
		d.assignment("set_paid."+a.Column, a, m.ID.Column)
	}
	for _, w := range m.Where {
		d.conditionOn("where."+w.Column, w)
	}
	for i, name := range m.EventColumns {
		d.eventColumn(fmt.Sprintf("event.columns[%d]", i), name)
	}
	for _, a := range m.Attributes {
		d.eventColumn("attributes."+a.Name, a.Column)
	}
	d.needDueIndex(m)
}

// paymentID checks that the column of payments' ids is text, and holds each id that RecordPayment accepts. A column that cuts an
// id off would make the next callback of the same payment another payment.
func (d *databaseChecker) paymentID(column string) {
	c, ok := d.optional("payment_id", column)
	switch {
	case !ok || !d.writable("payment_id", column, "", "payment_id"):
	case c.Type != "varchar" && c.Type != "char":
		d.reportHarm("payment_id", fmt.Sprintf("%s is %s", d.where(column), c.Definition), "a payment writes its id to it",
			"map a column of text, or remove payment_id")
	case c.Length > 0 && c.Length < orderclose.MaxIDBytes: // a text of PostgreSQL has no length
		text := fmt.Sprintf("varchar(%d)", orderclose.MaxIDBytes)
		fix := c.modify(d.name, column, text+" COLLATE "+c.Collation)
		if d.table.Postgres {
			fix = "ALTER TABLE " + Quote(d.name) + " ALTER COLUMN " + Quote(column) + " TYPE " + text
		}
		d.reportHarm("payment_id", fmt.Sprintf("%s is %s, and ids of payments have up to %d bytes", d.where(column), c.Definition, orderclose.MaxIDBytes),
			"the database refuses a longer id, and the paid order is closed; or it cuts the id off, and each further callback is a late payment", fix)
	}
}

func (d *databaseChecker) items(m *Mapping, name string, schema Schema) {
	if !d.selectTable("items.table", name, schema) {
		return
	}
	d.key("items.order", m.Items.Order, m.ID.Type)
	d.lineKeys(m)
	for _, w := range m.Items.Where {
		d.conditionOn("items.where."+w.Column, w)
	}
	if d.wholeNumbers("items.quantity", m.Items.Quantity) && d.pieces("items.quantity", m.Items.Quantity) {
		d.notLookedUp("items.quantity", m.Items.Quantity)
	}
	if !strings.EqualFold(m.Items.Table, m.Orders) && schema.fullName(name) != schema.fullName(m.Orders) { // else a row is an order and its only line
		d.notNumbered("items.order", m.Items.Order, "the order's id")
		d.notNumbered("items.sku", m.Items.SKU, "the SKU")
	}
	d.needIndexOn("items.order", m.Items.Order, "items_by_order")
}

func (d *databaseChecker) stock(path string, s *Stock, schema Schema) {
	if !d.selectTable(path+".table", s.Table, schema) {
		return
	}
	d.key(path+".sku.column", s.SKU.Column, s.SKU.Type)
	if s.Location.Column != "" {
		d.key(path+".location.column", s.Location.Column, s.Location.Type)
	}
	d.needUniqueIndex(path+".sku.index", s.SKU, s.Location.Column)
	d.stockLocks(path, s)
	for _, c := range []struct{ path, column, remove string }{{path + ".available", s.Available, ""}, {path + ".reserved", s.Reserved, "reserved"}} {
		if c.column != "" && d.wholeNumbers(c.path, c.column) && d.writable(c.path, c.column, s.SKU.Column, c.remove) {
			d.notLookedUp(c.path, c.column)
		}
	}
}

// distinct checks that each table and each column has one purpose, where only the database
// knows that two names mean the same table.
func (d *databaseChecker) distinct(m *Mapping, schema Schema, orders, items []string) {
	for i, s := range m.Stock {
		d.refuseOwnTableAs(StockPath(i)+".table", s.Table, schema)
		for _, other := range m.Stock[:i] {
			if schema.fullName(other.Table) == schema.fullName(s.Table) {
				d.report(StockPath(i)+".table", "table "+s.Table+" is listed twice", "list each table of stock once")
			}
		}
		for _, o := range orders {
			d.stockApart(StockPath(i)+".table", schema.fullName(o), "", schema.fullName(s.Table))
		}
		for _, l := range items {
			d.stockApart(StockPath(i)+".table", "", schema.fullName(l), schema.fullName(s.Table))
		}
	}
	for _, o := range orders {
		d.refuseOwnTableAs("table", o, schema)
	}
	for _, i := range items {
		d.refuseOwnTableAs("items.table", i, schema)
		for _, o := range orders {
			if full := schema.fullName(o); full == schema.fullName(i) {
				d.onePurposeEach(m.purposes(full, full, ""))
			}
		}
	}
}

// collations checks that lines name orders and SKUs in the collations in which orders and stock have them. Otherwise an id could be one order's to
// the lines, and another order's to the orders. The collations of the ids of all months can be merged, because a page merges their tables.
func (d *databaseChecker) collations(m *Mapping, schema Schema, orders, items []string) {
	for _, name := range orders {
		d.sameCollation("id.column", schema, name, m.ID.Column, orders[len(orders)-1], m.ID.Column, true)
	}
	for i, lines := range items {
		of := orders
		if len(items) == len(orders) {
			of = orders[i : i+1] // each month has a table of lines
		}
		for _, name := range of {
			d.sameCollation("items.order", schema, lines, m.Items.Order, name, m.ID.Column, false)
		}
		for i, s := range m.Stock {
			d.sameCollation(m.linePath(i), schema, lines, m.LineKey(s), s.Table, s.SKU.Column, false)
			if s.Location.Column != "" {
				d.sameCollation("items.location", schema, lines, m.Items.Location, s.Table, s.Location.Column, false)
			}
		}
	}
	d.problems = firstOfEach(d.problems)
}

// sameCollation checks that two columns have one collation, as bin of all charsets is. With mayMerge the server may merge them, as bin or by charset.
func (d *databaseChecker) sameCollation(path string, schema Schema, lines, column, table, other string, mayMerge bool) {
	c, _ := schema[lines].column(column)
	want, _ := schema[table].column(other)
	charset, rules, _ := strings.Cut(c.Collation, "_")
	otherCharset, otherRules, _ := strings.Cut(want.Collation, "_")
	fits := rules == "bin" && otherRules == "bin" || mayMerge && (charset != otherCharset || rules == "bin" || otherRules == "bin")
	if c.Collation == want.Collation || c.Collation == "" || want.Collation == "" || fits {
		return
	}
	fix := c.modify(lines, column, c.Definition+" COLLATE "+want.Collation)
	if schema[lines].Postgres {
		fix = "ALTER TABLE " + Quote(lines) + " ALTER COLUMN " + Quote(column) + " TYPE " + c.Definition + " COLLATE " + Quote(want.Collation)
	}
	if c.Generated {
		fix = "generate the column with COLLATE " + want.Collation
	}
	d.reportHarm(path, fmt.Sprintf("column %s.%s has the collation %s, and %s.%s has %s", lines, column, c.Collation, table, other, want.Collation),
		"two spellings that are one to one table and two to the other would mix up orders, or lines of several orders or SKUs", fix)
}

// refuseOwnTableAs reports one of orderclose's own tables, whatever the mapping calls it.
func (d *databaseChecker) refuseOwnTableAs(path, name string, schema Schema) {
	if t := schema[name]; t.Home {
		d.refuseOwnTable(path, t.Name)
	}
}

// firstOfEach removes repeated problems, such as the same problem in the next month's table.
func firstOfEach(problems []Problem) []Problem {
	seen := map[Problem]bool{}
	return slices.DeleteFunc(problems, func(p Problem) bool {
		was := seen[p]
		seen[p] = true
		return was
	})
}

// selectTable makes a table the current one, if it exists.
func (d *databaseChecker) selectTable(path, name string, schema Schema) bool {
	table, ok := schema[name]
	switch {
	case !ok:
		d.report(path, fmt.Sprintf("table %s does not exist, or this database user may not see it", name),
			"correct the name (on PostgreSQL write the schema before it, or name the schema in search_path), or grant SELECT and UPDATE on the table")
		return false
	case table.View:
		d.reportHarm(path, name+" is a view", "its rows are locked through no index of its own", "name the table behind it")
		return false
	}
	d.name, d.table = name, table
	d.transactional(path, "table "+name+" has the engine", "a close that fails in the middle would leave half of its changes")
	return true
}

// transactional checks that the selected table has transactions. what is the text before its engine.
func (d *databaseChecker) transactional(path, what, why string) {
	if t := d.table; !t.View && !t.Postgres && !strings.EqualFold(t.Engine, "InnoDB") {
		d.reportHarm(path, fmt.Sprintf("%s %s, which has no transactions", what, t.Engine), why, "ALTER TABLE "+Quote(d.name)+" ENGINE = InnoDB")
	}
}

// where names a column of the selected table, for a problem.
func (d *databaseChecker) where(column string) string { return "column " + d.name + "." + column }

// column returns a column of the selected table, and reports a problem if there is none.
func (d *databaseChecker) column(path, name string) (Column, bool) {
	c, ok := d.table.column(name)
	switch {
	case !ok:
		d.report(path, "there is no "+d.where(name), "correct the name, or add the column")
	case c.Name != "" && c.Name != name:
		d.report(path, "there is no "+d.where(name), "write it as the database does: "+c.Name)
		return c, false
	}
	return c, ok
}

// optional is column for a name that may be empty; then it reports nothing.
func (d *databaseChecker) optional(path, name string) (Column, bool) {
	if name == "" {
		return Column{}, false
	}
	return d.column(path, name)
}
