package propose

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// linesChoice is the table of lines.
type linesChoice struct {
	table                    *Table
	order, id, sku, quantity string // id: the column of orders that order holds
	why                      string
}

// stockChoice is the table of stock.
type stockChoice struct {
	table               *Table
	key, index          string
	available, reserved string
	why                 string
}

// chooseLines chooses the table of lines, and which column of orders they refer to.
func (p *Proposal) chooseLines(f *Facts, _ Answers) {
	var first *Table
	for _, t := range f.lineTables(p.table) {
		if t.Pattern != "" && p.table.Pattern == "" {
			continue
		}
		order, id := f.reference(t, p.table)
		if id == "" {
			continue
		}
		quantity := t.first("quantity", isWhole)
		if quantity == "" {
			if first == nil {
				first = t
			}
			continue
		}
		p.items = &linesChoice{table: t, order: order, id: id, quantity: quantity, sku: t.first("sku", isKey), why: "its name"}
		if l := f.link(t, order, p.table, id); l.of > 0 {
			p.items.why = fmt.Sprintf("%d of its %d newest orders are in %s", l.found, l.of, p.table.Name)
		}
		return
	}
	if first != nil {
		what := "has no quantity"
		if q := first.first("quantity", isAny); q != "" {
			what = "counts in " + first.real(q) + ", which is " + first.Columns[q].Definition
		}
		p.doubt("table %s %s: a close moves whole pieces only, so it returns no stock here. Return it by on_close, or by a reader of the events (docs/mapping.md)", first.Name, what)
	}
}

// reference returns the column of lines that holds the order, and the column of orders that it holds; id is empty if none does.
func (f *Facts) reference(lines, orders *Table) (order, id string) {
	for _, sure := range []bool{true, false} {
		for _, ref := range lines.refersTo(orders) {
			for _, id := range orders.ids() {
				l := f.link(lines, ref, orders, id)
				same := comparable(lines.Columns[ref], orders.Columns[id])
				if same && (l.sure() || !sure && l.of == 0) {
					return ref, id
				}
			}
		}
	}
	return "", ""
}

// stockTables returns the tables that may have the stock, each with its key.
func (f *Facts) stockTables(lines *Table) (all []stockChoice) {
	for _, t := range f.Tables {
		of := tokens(t.Name)
		if t == lines || t.View || t.Pattern != "" || !has(of, "stockWords") || has(of, "notStock") {
			continue
		}
		available, reserved := t.first("available", isWhole), t.first("reserved", isWhole)
		if available == reserved {
			available = ""
		}
		if available == "" && reserved == "" {
			continue
		}
		keys := []string{}
		if key := t.key(); key != "" {
			keys = append(keys, key)
		}
		for _, c := range t.ranked("sku", isKey) {
			if _, ok := t.unique(c); ok && !slices.Contains(keys, c) {
				keys = append(keys, c)
			}
		}
		for _, key := range keys {
			index, _ := t.unique(key)
			all = append(all, stockChoice{table: t, key: key, index: index, available: available, reserved: reserved})
		}
	}
	return all
}

// readStockLinks looks up which stock the SKUs of lines are in.
func (f *Facts) readStockLinks(ctx context.Context, lines *Table) {
	for _, s := range f.stockTables(lines) {
		for _, sku := range lines.ranked("sku", isKey) {
			if f.named(lines, sku, s) {
				f.readLink(ctx, lines, sku, s.table, s.key)
			}
		}
	}
}

// named says that by its name or a foreign key a column of lines holds the key of a stock.
func (f *Facts) named(lines *Table, sku string, s stockChoice) bool {
	refers := strings.Trim(lines.Columns[sku].RefersTo, "`\"")
	if refers = strings.Trim(refers[strings.LastIndex(refers, ".")+1:], "`\""); refers != "" {
		return strings.EqualFold(refers, s.table.Name)
	}
	c, name := compress(sku), compress(s.table.Name)
	if c == compress(s.key) && s.key != "id" {
		return true
	}
	stem := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(c, "id"), "code"), "no")
	if len(stem) < 2 {
		return false
	}
	if strings.Contains(name, stem) { // sku_id, and the table t_goods_sku
		return true
	}
	return slices.ContainsFunc(tokens(sku), func(w string) bool { return len(w) > 2 && slices.Contains(tokens(s.table.Name), w) })
}

// chooseStock chooses the table to which a close returns the pieces.
func (p *Proposal) chooseStock(f *Facts, a Answers) {
	if p.items == nil {
		return
	}
	best, points := stockChoice{}, 0
	var others []string
	for _, s := range f.stockTables(p.items.table) {
		for rank, sku := range p.items.table.ranked("sku", isKey) {
			l := f.link(p.items.table, sku, s.table, s.key)
			refers := p.items.table.Columns[sku].RefersTo != ""
			if !f.named(p.items.table, sku, s) || !comparable(p.items.table.Columns[sku], s.table.Columns[s.key]) || !l.sure() && !(l.of == 0 && refers) {
				continue
			}
			n := 20 - 2*rank
			if s.reserved != "" {
				n += 8
			}
			if rank := slices.Index(lists["available"], compress(s.available)); rank >= 0 && rank < 20 {
				n += 4
			}
			if has(tokens(s.table.Name), "skuWords") {
				n += 4
			}
			if compress(sku) == compress(s.key) {
				n++
			}
			others = append(others, s.table.Name)
			if n > points {
				s.why = fmt.Sprintf("%d of the %d newest SKUs of %s are in it", l.found, l.of, p.items.table.Name)
				best, points = s, n
				p.items.sku = sku
			}
		}
	}
	if points == 0 {
		p.doubt("no table with the stock of %s was found: a close returns none, and its event lists what to release. If a table has it, map it as stock (docs/mapping.md)",
			p.items.table.real(p.items.sku))
		return
	}
	p.stock = &best
	t := best.table
	switch {
	case best.reserved == "" && a.Stock == "":
		p.ask(Question{Flag: "stock", Text: fmt.Sprintf("does the shop take pieces from %s.%s when an order is placed, or when it is paid? placed, paid, or none if neither", t.Name,
			t.real(best.available)), Numbers: []string{best.why}, Choices: words("placed paid none")})
	case best.reserved == "" && a.Stock != "placed":
		p.stock, p.why["stock"] = nil, "an unpaid order holds none"
	case best.available != "" && !slices.ContainsFunc(words("available free sellable salable remain"), func(w string) bool { return strings.Contains(compress(best.available), w) }):
		p.doubt("a close takes from %s.%s only, as %s includes what orders hold. If %s falls when an order is placed, add available: %s", t.Name, t.real(best.reserved),
			t.real(best.available), t.real(best.available), t.real(best.available))
		best.available = ""
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == t.Name })
	slices.Sort(others)
	for _, name := range slices.Compact(others) {
		p.doubt("%s has a stock too. If it is a total that orders change, map both: docs/mapping.md, Stock in several places", name)
	}
}

// chooseOthers chooses what is no necessary part: soft deletes, the time of the close, the category and the version.
func (p *Proposal) chooseOthers(f *Facts, _ Answers) {
	t, open := p.table, p.status.is(unpaid)
	for _, column := range t.ranked("deleted", func(c mapping.Column) bool { return isStatus(c) || isTime(c) }) {
		values := t.rows.of(column)
		marked, n := share(values, open)
		if n > 0 && marked > 0.5 { // then it marks what is there
			p.doubt("%s is set in %.0f of %d unpaid orders, so it is not taken for a mark of deleted ones", column, marked*float64(n), n)
			continue
		}
		c, is := t.Columns[column], "0"
		switch zero := slices.IndexFunc(values, func(v any) bool { return v != nil && !holds(v) }); {
		case c.Type == "boolean":
			is = `"false"`
		case isText(c) && zero >= 0:
			is = fmt.Sprintf("%q", text(values[zero]))
		case c.Nullable && zero < 0 && !isText(c):
			is = "null"
		case !isInteger(c):
			continue
		}
		p.where = append(p.where, condition{t.real(column), is, fmt.Sprintf("%.0f of %d unpaid orders are deleted, and stay as they are", marked*float64(n), n)})
		break
	}
	for _, column := range t.ranked("closedat", isTime) {
		at, ok := p.timeIn(column)
		if ok && !t.Columns[column].OnUpdate && !t.Columns[column].DefaultNow && (t.Columns[column].Nullable || t.Columns[column].Default) {
			if early, _ := share(t.rows.of(column), open); early < 0.01 {
				p.closed = at
				break
			}
		}
	}
	for _, column := range t.ranked("category", func(c mapping.Column) bool { return isKey(c) || c.Type == "enum" }) {
		counts := map[string]int{}
		for i, v := range t.rows.of(column) {
			if counts[text(v)]++; open(i) && v == nil {
				counts[""] = 1000
			}
		}
		var list []string
		for v, n := range counts {
			if list = append(list, fmt.Sprintf("%s (%d)", v, n)); meaningOf(v) == paid && strings.Contains(compress(v), "refund") { // rows of several kinds in a table
				p.keepKind(column, open)
			}
		}
		if slices.Sort(list); len(list) > 1 && len(list) <= 20 && p.columns["category"] == "" {
			p.columns["category"], p.why["category"] = t.real(column), "its values: "+strings.Join(list, ", ")+". delays.categories gives each a delay of its own"
		}
	}
	for _, column := range t.ranked("version", func(c mapping.Column) bool { return isInteger(c) && c.Type != "tinyint" }) {
		p.columns["lock"], p.why["lock"] = t.real(column), "its name: code that locks optimistically sees each close"
		break
	}
}

// keepKind adds the condition that an order is of the kind of most unpaid ones: the table has refunds too.
func (p *Proposal) keepKind(column string, open func(int) bool) {
	counts, most := map[string]int{}, ""
	for i, v := range p.table.rows.of(column) {
		if open(i) {
			if counts[text(v)]++; counts[text(v)] > counts[most] {
				most = text(v)
			}
		}
	}
	if most != "" {
		p.where = append(p.where, condition{p.table.real(column), fmt.Sprintf("%q", most), fmt.Sprintf("%d unpaid orders have it, and others are no orders", counts[most])})
	}
}
