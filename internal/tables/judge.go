package tables

import (
	"fmt"
	"slices"
	"strings"
)

// Judge is what keeps a mapping from working on these tables, or what harm it would do
// there. The names are those of tables that there are, for a mapping with shards those
// of the months.
func (m *Mapping) Judge(facts Facts, orders, items []string) []Problem {
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

// judge looks at one table after the other.
type judge struct {
	checker
	name  string
	table Table
}

func (j *judge) orders(m *Mapping, name string, facts Facts) {
	if !j.enter("table", name, facts) {
		return
	}
	j.key("id.column", m.ID.Column, m.ID.Type)
	j.unique("id.index", m.ID)
	j.status(m.Status)
	j.moment("due", &m.Due)
	j.moment("created", m.Created)
	j.moment("closed_at", m.ClosedAt)
	j.writtenMoments(m)
	j.written("status.column", m.Status.Column, m.ID.Column, "")
	j.optional("category", m.Category)
	if c, ok := j.optional("version", m.Version); ok && j.written("version", m.Version, m.ID.Column, "version") {
		j.counter(m.Version, c)
	}
	j.dueIndex(m)
}

func (j *judge) items(m *Mapping, name string, facts Facts) {
	if !j.enter("items.table", name, facts) {
		return
	}
	j.key("items.order", m.Items.Order, m.ID.Type)
	if c, ok := j.column("items.sku", m.Items.SKU); ok {
		j.readable("items.sku", m.Items.SKU, c)
	}
	if j.whole("items.quantity", m.Items.Quantity) {
		j.amount("items.quantity", m.Items.Quantity)
	}
	j.led("items.order", m.Items.Order, "items_by_order")
}

func (j *judge) stock(s *Stock, facts Facts) {
	if !j.enter("stock.table", s.Table, facts) {
		return
	}
	j.key("stock.sku.column", s.SKU.Column, s.SKU.Type)
	j.unique("stock.sku.index", s.SKU)
	for _, c := range []struct{ path, column, remove string }{{"stock.available", s.Available, ""}, {"stock.reserved", s.Reserved, "reserved"}} {
		if c.column != "" && j.whole(c.path, c.column) {
			j.written(c.path, c.column, s.SKU.Column, c.remove)
		}
	}
}

// distinct wants each table and each column to have one purpose where only the
// database knows that two names mean the same table.
func (j *judge) distinct(m *Mapping, facts Facts, orders, items []string) {
	stock := ""
	if m.Stock != nil {
		stock = facts.full(m.Stock.Table)
		j.notOurTable("stock.table", m.Stock.Table, facts)
	}
	for _, o := range orders {
		j.notOurTable("table", o, facts)
		j.apart(facts.full(o), "", stock)
	}
	for _, i := range items {
		j.notOurTable("items.table", i, facts)
		j.apart("", facts.full(i), stock)
		for _, o := range orders {
			if full := facts.full(o); full == facts.full(i) {
				j.purposesOnce(m.purposes(full, full, ""))
			}
		}
	}
	j.problems = firstOfEach(j.problems)
}

// notOurTable refuses one of orderclose's own tables, under whatever name.
func (j *judge) notOurTable(path, name string, facts Facts) {
	if t := facts[name]; t.Home {
		j.notOurs(path, t.Name)
	}
}

// firstOfEach leaves out what is said again, such as of the next month's table.
func firstOfEach(problems []Problem) []Problem {
	seen := map[Problem]bool{}
	return slices.DeleteFunc(problems, func(p Problem) bool {
		was := seen[p]
		seen[p] = true
		return was
	})
}

// enter turns to a table, if it is there.
func (j *judge) enter(path, name string, facts Facts) bool {
	table, ok := facts[name]
	switch {
	case !ok:
		j.say(path, fmt.Sprintf("there is no table %s, or this user may not see it", name), "correct the name, or grant SELECT and UPDATE on the table")
		return false
	case table.View:
		j.harm(path, name+" is a view", "its rows are locked through no index of its own", "name the table behind it")
		return false
	}
	j.name, j.table = name, table
	if !strings.EqualFold(table.Engine, "InnoDB") {
		j.harm(path, fmt.Sprintf("table %s has the engine %s, which has no transactions", name, table.Engine),
			"a close that fails in the middle would leave half of its changes", "ALTER TABLE "+Quote(name)+" ENGINE = InnoDB")
	}
	return true
}

func (j *judge) where(column string) string { return "column " + j.name + "." + column }

func (j *judge) column(path, name string) (Column, bool) {
	c, ok := j.table.column(name)
	if !ok {
		j.say(path, "there is no "+j.where(name), "correct the name, or add the column")
	}
	return c, ok
}

func (j *judge) optional(path, name string) (Column, bool) {
	if name == "" {
		return Column{}, false
	}
	return j.column(path, name)
}
