package propose

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// filter is a condition of orders.where.
type filter struct {
	*column
	values    []string
	null, not bool // null: NULL is one of the values; not: none of them
	why       string
}

func (f filter) accepts(v any) bool {
	listed := v == nil && f.null || v != nil && slices.ContainsFunc(f.values, func(value string) bool { return same(text(v), value) })
	return listed != f.not
}

// String writes the filter for topics.yaml.
func (f filter) String() string {
	var all []string
	for _, v := range f.values {
		all = append(all, f.column.written(v))
	}
	if f.null {
		all = append(all, "null")
	}
	list := strings.Join(all, ", ")
	if len(all) > 1 {
		list = "[" + list + "]"
	}
	if f.not {
		list = "{not: " + list + "}"
	}
	return list
}

// unset is the filter that a column holds nothing: NULL, zero or false. false: no condition says so, as of an empty text.
func (c *column) unset() (filter, bool) {
	f := filter{column: c, null: c.Nullable}
	for _, v := range c.rows {
		if value := text(v); v != nil && !holds(v) && !slices.Contains(f.values, value) {
			f.values = append(f.values, value)
		}
	}
	switch {
	case c.Type == "boolean":
		f.values = []string{"false"}
	case isInteger(c) || c.Type == "decimal" || isBit(c):
		f.values = []string{"0"}
	case !isText(c) && len(f.values) > 0 || slices.Contains(f.values, ""):
		return f, false
	}
	slices.Sort(f.values)
	return f, f.null || len(f.values) > 0
}

// kept returns what --keep says of a column, or of tables with payments; false: nothing.
func (p *Proposal) kept(name string) (values []string, answered bool) {
	for _, answer := range p.a.Keep {
		if of, list, _ := strings.Cut(answer, "="); strings.EqualFold(of, name) {
			return strings.Split(list, ","), true
		}
	}
	return nil, p.a.mapped != nil && slices.ContainsFunc(p.a.mapped.Where, func(c mapping.Condition) bool { return strings.EqualFold(c.Column, name) })
}

// maxIDs is how many orders are excluded by their ids: a query has each of them.
const maxIDs = 50

// keepMapped excludes what the mapping excludes.
func (p *Proposal) keepMapped() {
	p.notBefore = p.a.mapped.NotBefore
	for _, condition := range p.a.mapped.Where {
		f := filter{column: p.table.named(condition.Column), not: condition.Not}
		for _, v := range condition.Any {
			if v == (mapping.Value{}) {
				f.null = true
			} else {
				f.values = append(f.values, v.Text)
			}
		}
		if f.column != nil && f.rows != nil {
			p.where = append(p.where, f)
		}
	}
}

// keepAnswered excludes what stays open by --keep.
func (p *Proposal) keepAnswered() {
	if p.a.mapped != nil {
		p.keepMapped()
	}
	for _, answer := range p.a.Keep {
		name, list, _ := strings.Cut(answer, "=")
		c := p.table.named(name)
		switch {
		case name == "unknown" || list == "unknown":
			if p.notBefore.IsZero() {
				p.doubt("--keep unknown keeps what is overdue now, and later orders of the same kind close after the delay: find out what tells them apart, or give them " +
					"a status of their own, and replace not_before by orders.where")
			}
			p.notBefore = p.f.Now.UTC().Truncate(time.Second)
		case name == "none":
		case list == "none":
			if !slices.Contains(p.accept, mapping.PaidOrders) {
				p.accept = append(p.accept, mapping.PaidOrders)
			}
		case name == strings.Join(p.table.paidIn, ",") && list == "ids":
			p.keepPaid()
		case c == nil || list == "" || c.rows == nil && p.table.rows > 0:
			p.refuse("--keep %s: write COLUMN=VALUES with a column of %s, unknown, or none. Orders that only another table tells apart need a column of their own "+
				"that the shop or a trigger writes", answer, p.table.Name)
		case list == "set":
			f, ok := c.unset()
			if f.why = "orders with a value stay open, by --keep"; !ok {
				p.refuse("--keep %s: orders.where cannot say that %s.%s is empty. Add a generated column that does", answer, p.table.Name, c.Name)
			}
			p.where = append(p.where, f)
		default:
			f := filter{column: c, not: true, why: "these stay open, by --keep"}
			for _, v := range strings.Split(list, ",") {
				if strings.EqualFold(v, "null") {
					f.null = true
				} else {
					f.values = append(f.values, v)
				}
			}
			p.where = append(p.where, f)
		}
	}
}

// keepPaid excludes the unpaid orders with a payment in another table by their ids.
func (p *Proposal) keepPaid() {
	f := filter{column: p.id, not: true, why: "they have a payment in another table"}
	for row, v := range p.id.rows {
		if p.unpaid(row) && holds(p.table.paid.rows[row]) {
			f.values = append(f.values, text(v))
		}
	}
	if len(f.values) > maxIDs || p.id.Type == "uuid" {
		p.refuse("--keep: %d unpaid orders have a payment in another table, too many to list or with ids that orders.where cannot compare. Give them another "+
			"status, or answer --keep unknown", len(f.values))
	} else if len(f.values) > 0 {
		p.where = append(p.where, f)
	}
}

func (t *Table) named(name string) *column {
	for _, c := range t.columns {
		if strings.EqualFold(c.Name, name) {
			return c
		}
	}
	return nil
}

// examples returns up to five ids.
func (p *Proposal) examples(of func(row int) bool) string {
	var all []string
	for row, v := range p.id.rows {
		if of(row) && len(all) < 5 {
			all = append(all, text(v))
		}
	}
	return strings.Join(all, ", ")
}

// askKeep asks whether unpaid orders with a value in a column stay open.
func (p *Proposal) askKeep(c *column, why string) {
	set := func(row int) bool { return p.unpaid(row) && holds(c.rows[row]) }
	_, n, _ := c.count(p.unpaid)
	_, marked, _ := c.count(set)
	orders := fmt.Sprintf("%d of %d unpaid orders, those with a %s, such as %s", marked, n, c.Name, p.examples(set))
	p.ask(Question{Flag: "keep", Key: c.Name + "=", Text: fmt.Sprintf(why, orders),
		Choices: "Do they stay open? set: whatever has a value there stays open; none: they close"})
}

// fewValues is how many values tell orders apart by value. A column with more tells them apart by whether it holds anything.
const fewValues = 20

// tells says that orders may differ by what a column has: one that can be compared, and is no long text.
func tells(c *column) bool {
	return isInteger(c) || isMark(c) || is(c, "decimal date datetime timestamp timestamptz uuid enum boolean") || is(c, "varchar char") && c.Length <= 64
}

// classes returns the class of each row by what the column has: its value, or whether it holds anything.
func (c *column) classes() []string {
	counts, _, _ := c.count(anyRow)
	byValue := len(counts) <= fewValues && !is(c, "date datetime timestamp timestamptz")
	all := make([]string, len(c.rows))
	for row, v := range c.rows {
		switch all[row] = text(v); {
		case v == nil:
			all[row] = "null"
		case !byValue && holds(v):
			all[row] = "set"
		case !byValue:
			all[row] = "null"
		}
	}
	return all
}

// paysLater matches ways to pay that take days.
var paysLater = regexp.MustCompile(lists["later"][0])

// Exceptions are the unpaid orders that a mapping closes, and that may have to stay open.
type Exceptions struct {
	Money []string `json:"money,omitempty"` // those with a sign of a payment, or deleted ones
	Old   []string `json:"old,omitempty"`   // those that are open far beyond the delay, and by what they differ from those that the shop closes
}

// Exceptions returns what Propose would exclude or ask about the unpaid orders of a mapping, whose orders are closed after delay.
func (f *Facts) Exceptions(m *mapping.Mapping, delay time.Duration) (e Exceptions) {
	a := Answers{
		Table: m.Orders, Unpaid: strings.Join(m.Status.From.Texts(), ","), Closed: m.Status.To.Text, Zone: cmp.Or(m.Due.Zone, "UTC"), Due: m.Due.Column,
		Delay: delay, Stock: "paid", mapped: m,
	}
	if m.ByRule {
		a.Created, a.Due = m.Due.Column, "none"
	} else if m.Created != nil {
		a.Created = m.Created.Column
	}
	p := f.Propose(a)
	for _, w := range p.where {
		other := func(row int) bool { return p.from.in(row) && !w.accepts(w.rows[row]) }
		if _, n, _ := p.from.count(other); n > 0 && w.why != "" {
			e.Money = append(e.Money, fmt.Sprintf("%d unpaid orders, such as %s, have another %s than %s", n, p.examples(other), w.Name, w))
		}
	}
	for _, q := range p.Questions {
		if all := append([]string{q.Text}, q.Numbers...); q.Flag == "keep" && q.Key != "" {
			e.Money = append(e.Money, all...)
		} else if q.Flag == "keep" {
			e.Old = append(e.Old, all...)
		}
	}
	return e
}

// enoughClosed is how many closed orders show which orders the shop closes.
const enoughClosed = 20

// differences lists the columns by which some of the unpaid orders differ from those that the shop closes: a value that is four times rarer among closed
// orders, of which eight were to be expected; with eight to be expected two or less are chance in one of seventy columns. If the shop closes nothing, each
// difference counts.
func (p *Proposal) differences() (all []string) {
	own := map[*column]bool{p.from.column: true, p.id: true, p.created.of: true, p.due.of: true, p.shut.of: true, p.lock: true}
	for _, role := range words("number changed closedat money status pay paidat deleted version buyer") {
		for _, c := range p.table.ranked(role) {
			own[c] = true
		}
	}
	count := func(classes []string, of func(row int) bool) (map[string]int, int) {
		counts, n := map[string]int{}, 0
		for row, class := range classes {
			if of(row) {
				counts[class], n = counts[class]+1, n+1
			}
		}
		return counts, n
	}
	ended := func(row int) bool { return p.to.in(row) && !p.isPaid(row) }
	for _, c := range p.table.columns {
		if _, answered := p.kept(c.Name); own[c] || answered || len(c.rows) == 0 || !tells(c) {
			continue
		}
		classes := c.classes()
		open, n := count(classes, p.unpaid)
		closed, nClosed := count(classes, ended)
		says := ""
		for _, class := range slices.Sorted(maps.Keys(open)) {
			expected := float64(open[class]) / float64(n) * float64(nClosed)
			rare := nClosed >= enoughClosed && expected >= 8 && float64(closed[class])*4 <= expected
			takesDays := slices.Contains(p.table.ranked("method"), c) && paysLater.MatchString(compress(cmp.Or(c.label(class), class)))
			if open[class] < n && len(open) <= fewValues && (rare || takesDays || nClosed < enoughClosed) {
				name := class
				if label := c.label(class); label != "" {
					name += " (" + label + ")"
				}
				says += fmt.Sprintf(", %s: %d of %d unpaid, %d of %d closed", name, open[class], n, closed[class], nClosed)
			}
		}
		if says != "" {
			all = append(all, c.Name+strings.Replace(says, ",", "", 1))
		}
	}
	return all
}

// chooseExceptions asks which unpaid orders stay open, if some seem to: those that are open far beyond the delay, and those that differ from what the shop
// closes. A job that runs at least once in another delay and an hour would have closed the first.
func (p *Proposal) chooseExceptions() {
	_, none := p.kept("none")
	due, add := p.due, time.Duration(0)
	if due.of == nil {
		due, add = p.created, p.delay
	}
	if !p.notBefore.IsZero() || p.from.column == nil || p.from.value == "" || len(p.Questions) > 0 {
		return
	}
	late := func(row int) bool {
		return p.unpaid(row) && !due.at[row].IsZero() && p.f.Now.Sub(due.at[row].Add(add)) > p.delay+time.Hour
	}
	_, n, _ := p.from.count(p.unpaid)
	_, old, _ := p.from.count(late)
	if none {
		if old > 0 {
			p.accept = append(p.accept, mapping.OldOrders)
		}
		return
	}
	_, closed, _ := p.from.count(func(row int) bool { return p.to.in(row) && !p.isPaid(row) })
	differ, later := p.differences(), p.paidLater(func(row int) time.Time { return due.at[row].Add(add) })
	if old == 0 && len(differ) == 0 && later == "" {
		return
	}
	q := Question{Flag: "keep", Numbers: differ}
	switch {
	case old > 0 && closed >= enoughClosed:
		q.Text = fmt.Sprintf("%d of %d unpaid orders, such as %s, are open long after the delay of %s, while the shop closed %d others",
			old, n, p.examples(late), short(p.delay), closed)
	case old > 0:
		q.Text = fmt.Sprintf("%d of %d unpaid orders, such as %s, are open long after the delay of %s: the first sweep would close them", old, n,
			p.examples(late), short(p.delay))
	default:
		q.Text = fmt.Sprintf("some of %d unpaid orders may have to stay open", n)
	}
	q.Text += later
	q.Choices = "Which stay open? COLUMN=VALUES: orders with them, now and later; unknown: what is overdue now; none: all close"
	if len(differ) > 0 {
		q.Choices += ". They differ in"
	}
	p.ask(q)
}

// paidLater says that one of twenty orders or more was paid after it was due: the delay may be too short, or the orders begin as carts. "": it was not so.
func (p *Proposal) paidLater(due func(row int) time.Time) string {
	for _, c := range p.table.ranked("paidat") {
		at, ok := p.timeIn(c)
		if !ok || c.OnUpdate || c.DefaultNow {
			continue
		}
		_, n, _ := c.count(func(row int) bool { return !at.at[row].IsZero() })
		late := func(row int) bool { return at.at[row].After(due(row)) }
		if _, after, _ := c.count(late); after*20 > n {
			return fmt.Sprintf(". %d of %d paid orders, such as %s, were paid later than that: if a close would have been wrong, answer another --delay or --created",
				after, n, p.examples(late))
		}
	}
	return ""
}
