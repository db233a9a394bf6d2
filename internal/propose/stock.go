package propose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

type linesChoice struct {
	table                    *Table
	order, id, sku, quantity *column // id: the column of orders that order holds
	why                      string
}

// stockChoice is a table that may have the stock.
type stockChoice struct {
	table               *Table
	key, line           *column // line: the column of lines with the key
	available, reserved *column
	why                 string
	points              int
}

// chooseLines chooses the table of lines, and which column of orders they refer to.
func (p *Proposal) chooseLines() {
	all := p.f.lineTables(p.table)
	for _, t := range all {
		if quantity := t.first("quantity"); quantity != nil && isWhole(quantity) {
			order, id := p.f.reference(t, p.table)
			p.items = &linesChoice{table: t, order: order, id: id, quantity: quantity, sku: t.first("sku"), why: "its name"}
			if l := p.f.links[[2]*column{order, id}]; l.of > 0 {
				p.items.why = fmt.Sprintf("%d of its %d newest orders are in %s", l.found, l.of, p.table.Name)
			}
			return
		}
	}
	if len(all) == 0 {
		p.doubt("no table of lines with a SKU and a quantity was found, or this user may not read it: a close returns no stock. If unpaid orders hold some, map " +
			"items and stock (docs/mapping.md)")
	} else {
		what := "has no quantity"
		if q := all[0].first("quantity"); q != nil {
			what = "counts in " + q.Name + ", which is " + q.Definition
		}
		p.doubt("table %s %s: a close moves whole pieces only, so it returns no stock here. Return it by on_close, or by a reader of the events "+
			"(docs/mapping.md)", all[0].Name, what)
	}
}

// stockTables returns the tables that may have the stock: each with its keys, and the columns of lines that may hold them.
func (f *Facts) stockTables(lines *Table) (all []stockChoice) {
	for _, t := range f.Tables {
		of := tokens(t.Name)
		if t == lines || t.View || t.Pattern != "" || !has(of, "stockWords") || has(of, "notStock") {
			continue
		}
		pieces := func(role string) *column {
			for _, c := range t.ranked(role) {
				if !isMark(c) { // yes or no is no number of pieces
					return c
				}
			}
			return nil
		}
		s := stockChoice{table: t, available: pieces("available"), reserved: pieces("reserved")}
		if s.available == s.reserved {
			s.available = nil
		}
		if s.available == nil && s.reserved == nil {
			continue
		}
		own := t.key() // a row of stock may have a number of its own, beside its SKU
		for _, key := range append(slices.DeleteFunc(t.ranked("sku"), func(c *column) bool { return c == own }), own) {
			if key == nil || len(key.uniques()) == 0 {
				continue
			}
			for rank, sku := range lines.ranked("sku") {
				other := slices.ContainsFunc(t.columns, func(c *column) bool { return c != key && key == own && compress(c.key) == compress(sku.key) })
				if s.key, s.line, s.points = key, sku, 20-2*rank; s.named() && comparable(sku, key) && (!other || sku.refersTo(t)) {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// named says that by its name or a foreign key the column of lines holds the key of the stock.
func (s stockChoice) named() bool {
	if s.line.RefersTo != "" {
		return s.line.refersTo(s.table)
	}
	c, name := compress(s.line.key), compress(s.table.Name)
	if strings.HasSuffix(compress(s.key.key), c) && s.key.key != "id" {
		return true
	}
	stem := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(c, "id"), "code"), "no")
	if len(stem) < 2 {
		return false
	}
	if strings.Contains(name, stem) { // sku_id, and the table t_goods_sku
		return true
	}
	return slices.ContainsFunc(tokens(s.line.key), func(w string) bool { return len(w) > 2 && slices.Contains(tokens(s.table.Name), w) })
}

// chooseStock chooses the tables to which a close returns the pieces. The first one has the SKUs.
func (p *Proposal) chooseStock() {
	if p.items == nil {
		if p.a.Stock != "" && p.a.Stock != "paid" {
			p.refuse("--stock %s: no table of lines was found, so a close cannot return stock. Map items and stock by docs/mapping.md", p.a.Stock)
		}
		return
	}
	lines := p.items.table
	if c := lines.first("deleted"); c != nil {
		p.doubt("%s has %s: if lines that are deleted hold no stock, exclude them by items.where", lines.Name, c.Name)
	}
	var all []stockChoice
	for _, s := range p.f.stockTables(lines) {
		l := p.f.links[[2]*column{s.line, s.key}]
		if !l.sure() && l.of > 0 || slices.ContainsFunc(all, func(other stockChoice) bool { return other.table == s.table }) {
			continue
		}
		for points, is := range map[int]bool{8: s.reserved != nil, 5: has(tokens(s.table.Name), "skuWords"), 1: compress(s.line.key) == compress(s.key.key),
			4: s.available != nil && slices.Contains(lists["available"][:20], compress(s.available.key))} {
			if is {
				s.points += points
			}
		}
		if s.why = fmt.Sprintf("%d of the %d newest in %s.%s are in it", l.found, l.of, lines.Name, s.line.Name); l.of == 0 {
			s.why = "its name; no rows to compare"
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		p.why["stock"] = "no table with the stock was found; the event of a close lists what to release"
		p.doubt("no table with the stock of %s was found: a close returns none, and its event lists what to release. If a table has it, map it as "+
			"stock (docs/mapping.md)", p.items.sku.Name)
		return
	}
	slices.SortStableFunc(all, func(a, b stockChoice) int { return b.points - a.points })
	first := all[0]
	all = slices.DeleteFunc(all, func(s stockChoice) bool { return s.table != first.table && s.line == first.line }) // the key of one table
	p.items.sku = first.line
	if first.reserved != nil && (p.a.Stock == "" || p.a.Stock == "placed" || p.a.Stock == first.table.Name) {
		free := func(w string) bool { return strings.Contains(compress(first.available.key), w) }
		if first.available != nil && !slices.ContainsFunc(lists["freeWords"], free) {
			name := first.available.Name
			p.doubt("a close takes from %s.%s only, as %s includes what orders hold. If %s falls when an order is placed, add available: %s", first.table.Name,
				first.reserved.Name, name, name, name)
			first.available = nil
		}
		p.stock = []stockChoice{first}
		return
	}
	var columns, evidence []string
	for _, s := range all {
		columns, evidence = append(columns, s.table.Name+"."+cmp.Or(s.available, s.reserved).Name), append(evidence, s.table.Name+": "+s.why)
	}
	switch wanted := strings.Split(p.a.Stock, ","); p.a.Stock {
	case "":
		p.ask(Question{Flag: "stock", Text: "which of these falls when an order is placed, and not when it is paid? " + strings.Join(columns, ", ") +
			": placed (all of them), paid (none of them), or names of tables", Numbers: evidence, Choices: words("placed paid")})
	case "placed":
		p.stock = all
	case "paid":
		p.why["stock"] = "an unpaid order holds none"
	default:
		p.stock = slices.DeleteFunc(all, func(s stockChoice) bool { return !slices.Contains(wanted, s.table.Name) })
		if len(p.stock) != len(wanted) {
			p.refuse("--stock %s: write placed, paid, or some of %s", p.a.Stock, strings.Join(columns, ", "))
			return
		}
		p.items.sku = p.stock[0].line
	}
}
