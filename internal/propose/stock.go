package propose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
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
	line                string // the column of lines with the key
	available, reserved string
	why                 string
	points              int
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
		p.doubt("table %s %s: a close moves whole pieces only, so it returns no stock here. Return it by on_close, or by a reader of the events "+
			"(docs/mapping.md)", first.Name, what)
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
		own := t.key() // a row of stock may have a number of its own, beside its SKU
		for _, key := range append(slices.DeleteFunc(t.ranked("sku", isKey), func(c string) bool { return c == own }), own) {
			if index, ok := t.unique(key); ok {
				all = append(all, stockChoice{table: t, key: key, index: index, available: available, reserved: reserved})
			}
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
	if refers := lines.Columns[sku].RefersTo; refers != "" {
		return s.table.is(refers)
	}
	c, name := compress(sku), compress(s.table.Name)
	if strings.HasSuffix(compress(s.key), c) && s.key != "id" {
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

// chooseStock chooses the tables to which a close returns the pieces. The first one has the SKUs.
func (p *Proposal) chooseStock(f *Facts, a Answers) {
	if p.items == nil {
		return
	}
	lines := p.items.table
	var all []stockChoice
	for _, s := range f.stockTables(lines) {
		for rank, sku := range lines.ranked("sku", isKey) {
			l := f.link(lines, sku, s.table, s.key)
			if !f.named(lines, sku, s) || !comparable(lines.Columns[sku], s.table.Columns[s.key]) || !l.sure() && l.of > 0 {
				continue
			}
			s.line, s.points = sku, 20-2*rank
			for points, is := range map[int]bool{8: s.reserved != "", 4: slices.Contains(lists["available"][:20], compress(s.available)),
				5: has(tokens(s.table.Name), "skuWords"), 1: compress(sku) == compress(s.key)} {
				if is {
					s.points += points
				}
			}
			if s.why = fmt.Sprintf("%d of the %d newest in %s.%s are in it", l.found, l.of, lines.Name, lines.real(sku)); l.of == 0 {
				s.why = "its name; no rows to compare"
			}
			if !slices.ContainsFunc(all, func(other stockChoice) bool { return other.table == s.table }) {
				all = append(all, s)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b stockChoice) int { return b.points - a.points })
	all = slices.DeleteFunc(all, func(s stockChoice) bool { return s.table != all[0].table && s.line == all[0].line }) // the key of one table
	if len(all) == 0 {
		p.doubt("no table with the stock of %s was found: a close returns none, and its event lists what to release. If a table has it, map it as "+
			"stock (docs/mapping.md)", lines.real(p.items.sku))
		return
	}
	first := &all[0]
	p.items.sku = first.line
	if first.reserved != "" {
		free := func(w string) bool { return strings.Contains(compress(first.available), w) }
		if p.stock = all[:1]; first.available != "" && !slices.ContainsFunc(lists["freeWords"], free) {
			available := first.table.real(first.available)
			p.doubt("a close takes from %s.%s only, as %s includes what orders hold. If %s falls when an order is placed, add available: %s", first.table.Name,
				first.table.real(first.reserved), available, available, available)
			first.available = ""
		}
		return
	}
	var columns, evidence []string
	for _, s := range all {
		columns, evidence = append(columns, s.table.Name+"."+s.table.real(s.available)), append(evidence, s.table.Name+": "+s.why)
	}
	wanted := strings.Split(a.Stock, ",")
	switch a.Stock {
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
			p.Refused = fmt.Sprintf("--stock %s: write placed, paid, or some of %s", a.Stock, strings.Join(columns, ", "))
			return
		}
		p.items.sku = p.stock[0].line
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
		case c.Nullable && zero < 0 && !isText(c) && (len(values) > 0 || !isInteger(c)):
			is = "null"
		case !isInteger(c):
			continue
		}
		p.where = append(p.where, condition{t.real(column), is, fmt.Sprintf("%.0f of %d unpaid orders are deleted, and stay as they are", marked*float64(n), n)})
		break
	}
	for _, column := range t.ranked("closedat", isTime) {
		at, ok := p.timeIn(column)
		c := t.Columns[column]
		if ok && (at.Type != mapping.DateTime || at.Zone != "") && !c.OnUpdate && !c.DefaultNow && (c.Nullable || c.Default) {
			if early, _ := share(t.rows.of(column), open); early < 0.01 {
				p.closed = at
				break
			}
		}
	}
	for _, column := range t.ranked("category", func(c mapping.Column) bool { return isKey(c) || c.Type == "enum" }) {
		var list []string
		for v, n := range p.countOpen(column) {
			list = append(list, fmt.Sprintf("%s (%d)", v, n))
		}
		if slices.Sort(list); len(list) > 1 && len(list) <= 20 && p.columns["category"] == "" {
			p.columns["category"], p.why["category"] = t.real(column), "its values: "+strings.Join(list, ", ")+". delays.categories gives each a delay of its own"
		}
	}
	for _, column := range t.ranked("method", func(c mapping.Column) bool { return isInteger(c) || isText(c) }) {
		p.payLater(column)
	}
	var marks []string
	for _, column := range t.columns {
		counts := map[string]int{}
		if isMark(t.Columns[column]) {
			counts = p.countOpen(column)
		}
		for _, no := range []string{"0", "false"} {
			if set := counts["1"] + counts["true"]; set > 0 && counts[no] > 0 {
				marks = append(marks, fmt.Sprintf("%s (%d yes, %d no)", t.real(column), set, counts[no]))
			}
		}
	}
	if len(marks) > 0 {
		p.doubt("unpaid orders differ in %s: if some of them must stay open, exclude them by where", strings.Join(marks, ", "))
	}
	for _, column := range t.ranked("version", func(c mapping.Column) bool { return isInteger(c) && c.Type != "tinyint" }) {
		p.columns["lock"], p.why["lock"] = t.real(column), "its name: code that locks optimistically sees each close"
		break
	}
}

// later matches ways to pay that take days.
var later = regexp.MustCompile(lists["later"][0])

// payLater excludes unpaid orders that are paid at the door or by transfer, if all others are paid in one way. Else it warns.
func (p *Proposal) payLater(column string) {
	n, kinds, others := 0, "", []string{}
	counts := p.countOpen(column)
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		if label := cmp.Or(p.table.labels[column][v], v); later.MatchString(compress(label)) {
			n, kinds = n+counts[v], kinds+" "+label
		} else {
			others = append(others, v)
		}
	}
	switch {
	case n > 0 && len(others) == 1:
		p.where = append(p.where, condition{p.table.real(column), literal(others[0], p.table.Columns[column]),
			fmt.Sprintf("%d unpaid orders have%s, which is paid later, and stay open", n, kinds)})
	case n > 0:
		p.doubt("%d unpaid orders have the %s%s: if they are paid at the door or by transfer, a close is too early. One value can be excluded by where; "+
			"for several add a generated column", n, column, kinds)
	}
}

// countOpen counts the unpaid orders by the values of a column.
func (p *Proposal) countOpen(column string) map[string]int {
	counts, open := map[string]int{}, p.status.is(unpaid)
	for i, v := range p.table.rows.of(column) {
		if open(i) {
			counts[text(v)]++
		}
	}
	return counts
}
