package mapping

import (
	"fmt"
	"slices"
	"strings"
)

// CheckDatabase returns the problems that keep a mapping from working on the tables of a database,
// or the harm it would do there. orders and items are the names of existing tables; for a
// mapping with shards, of the months' tables.
func (m *Mapping) CheckDatabase(facts Schema, orders, items []string) []Problem {
	var j judge
	for _, name := range orders {
		j.orders(m, name, facts)
	}
	if m.Items != nil {
		for _, name := range items {
			j.items(m, name, facts)
		}
	}
	if m.Stock != nil {
		j.stock(m.Stock, facts)
	}
	j.distinct(m, facts, orders, items)
	return j.problems
}

// judge checks one table after the other.
type judge struct {
	checker
	name  string
	table Table
}

func (j *judge) orders(m *Mapping, name string, facts Schema) {
	if !j.selectTable("table", name, facts) {
		return
	}
	j.key("id.column", m.ID.Column, m.ID.Type)
	j.needUniqueIndex("id.index", m.ID)
	j.status(m.Status)
	j.moment("due", &m.Due)
	j.moment("created", m.Created)
	j.moment("closed_at", m.ClosedAt)
	j.writableMoments(m)
	j.writable("status.column", m.Status.Column, m.ID.Column, "")
	j.optional("category", m.Category)
	if c, ok := j.optional("version", m.Version); ok && j.writable("version", m.Version, m.ID.Column, "version") {
		j.counter(m.Version, c)
	}
	j.needDueIndex(m)
}

func (j *judge) items(m *Mapping, name string, facts Schema) {
	if !j.selectTable("items.table", name, facts) {
		return
	}
	j.key("items.order", m.Items.Order, m.ID.Type)
	if c, ok := j.column("items.sku", m.Items.SKU); ok {
		j.readable("items.sku", m.Items.SKU, c)
	}
	if j.wholeNumbers("items.quantity", m.Items.Quantity) {
		j.pieces("items.quantity", m.Items.Quantity)
	}
	j.needIndexOn("items.order", m.Items.Order, "items_by_order")
}

func (j *judge) stock(s *Stock, facts Schema) {
	if !j.selectTable("stock.table", s.Table, facts) {
		return
	}
	j.key("stock.sku.column", s.SKU.Column, s.SKU.Type)
	j.needUniqueIndex("stock.sku.index", s.SKU)
	for _, c := range []struct{ path, column, remove string }{{"stock.available", s.Available, ""}, {"stock.reserved", s.Reserved, "reserved"}} {
		if c.column != "" && j.wholeNumbers(c.path, c.column) {
			j.writable(c.path, c.column, s.SKU.Column, c.remove)
		}
	}
}

// distinct checks that each table and each column has one purpose, where only the database
// knows that two names mean the same table.
func (j *judge) distinct(m *Mapping, facts Schema, orders, items []string) {
	stock := ""
	if m.Stock != nil {
		stock = facts.fullName(m.Stock.Table)
		j.refuseOwnTableAs("stock.table", m.Stock.Table, facts)
	}
	for _, o := range orders {
		j.refuseOwnTableAs("table", o, facts)
		j.stockApart(facts.fullName(o), "", stock)
	}
	for _, i := range items {
		j.refuseOwnTableAs("items.table", i, facts)
		j.stockApart("", facts.fullName(i), stock)
		for _, o := range orders {
			if full := facts.fullName(o); full == facts.fullName(i) {
				j.onePurposeEach(m.purposes(full, full, ""))
			}
		}
	}
	j.problems = firstOfEach(j.problems)
}

// refuseOwnTableAs reports one of orderclose's own tables, whatever the mapping calls it.
func (j *judge) refuseOwnTableAs(path, name string, facts Schema) {
	if t := facts[name]; t.Home {
		j.refuseOwnTable(path, t.Name)
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
func (j *judge) selectTable(path, name string, facts Schema) bool {
	table, ok := facts[name]
	switch {
	case !ok:
		j.report(path, fmt.Sprintf("table %s does not exist, or this database user may not see it", name), "correct the name, or grant SELECT and UPDATE on the table")
		return false
	case table.View:
		j.reportHarm(path, name+" is a view", "its rows are locked through no index of its own", "name the table behind it")
		return false
	}
	j.name, j.table = name, table
	if !strings.EqualFold(table.Engine, "InnoDB") {
		j.reportHarm(path, fmt.Sprintf("table %s has the engine %s, which has no transactions", name, table.Engine),
			"a close that fails in the middle would leave half of its changes", "ALTER TABLE "+Quote(name)+" ENGINE = InnoDB")
	}
	return true
}

func (j *judge) where(column string) string { return "column " + j.name + "." + column }

func (j *judge) column(path, name string) (Column, bool) {
	c, ok := j.table.column(name)
	if !ok {
		j.report(path, "there is no "+j.where(name), "correct the name, or add the column")
	}
	return c, ok
}

func (j *judge) optional(path, name string) (Column, bool) {
	if name == "" {
		return Column{}, false
	}
	return j.column(path, name)
}
