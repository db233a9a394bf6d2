package propose

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// value is what the rows say of one value of a status.
type value struct {
	text    string
	label   string // what a comment or a table of statuses calls it; "": nothing does
	rows    int
	paid    float64 // share with a time of payment, or a mark that it is paid
	old     int     // rows older than a day
	young   int     // rows of the newest hundred
	says    meaning // by its label, or its own word
	numbers string  // all that for people
}

// statusColumn is a column with a status, and its values, those with the most rows first.
type statusColumn struct {
	name   string
	values []value
}

// statusChoice is the status of the mapping.
type statusChoice struct {
	column       string
	number       bool
	from, to     string
	paid, closed []string
	is           func(meaning) func(i int) bool // whether the i-th row read is unpaid, or closed
}

// lookupName is what a table of statuses is kept under.
func lookupName(column string) string { return "\x00labels " + column }

// readLookups reads the tables that name the values of a status.
func (f *Facts) readLookups(ctx context.Context, t *Table) error {
	for _, column := range t.ranked("status", isInteger) {
		for _, l := range f.Tables {
			of := tokens(l.Name)
			if l == t || l.View || !has(of, "statusWords") || has(of, "pastWords") {
				continue
			}
			key, refers := l.key(), strings.HasSuffix(strings.Trim(t.Columns[column].RefersTo, "`\""), l.Name)
			for _, c := range l.columns { // a table of names in several languages has a key of two columns
				if compress(c) == compress(column) || compress(c) == "id"+strings.TrimSuffix(strings.Join(tail(of, 2), ""), "s") {
					key, refers = c, true
				}
			}
			label := l.first("label", isText)
			if key == "" || label == "" || !refers && !strings.Contains(compress(l.Name), "orderstat") {
				continue
			}
			rows, err := f.reader.query(ctx, fmt.Sprintf("SELECT %s, %s FROM %s LIMIT 200", mapping.Quote(l.real(key)), mapping.Quote(l.real(label)), mapping.Quote(l.Name)))
			if err != nil {
				return fmt.Errorf("table %s: %w", l.Name, err)
			}
			for _, row := range rows {
				name := lookupName(column) + " " + text(row[0])
				if meaningOf(t.Comments[name]) == unknown {
					t.Comments[name] = text(row[1])
				}
			}
		}
	}
	return nil
}

func tail(of []string, n int) []string { return of[max(0, len(of)-n):] }

// paidMark returns which rows have a time of payment, or a mark that they are paid, and the name of that column; "": the table has none.
func (p *Proposal) paidMark(except string) (is func(i int) bool, name string) {
	t := p.table
	for _, column := range t.ranked("paidat", isTime) {
		if values := t.rows.of(column); !t.Columns[column].OnUpdate && !t.Columns[column].DefaultNow {
			if part, n := share(values, nil); n > 0 && part > 0.02 && part < 0.995 {
				return func(i int) bool { return holds(values[i]) }, t.real(column)
			}
		}
	}
	for _, column := range t.ranked("pay", isStatus) {
		if column == except {
			continue
		}
		c, said := p.statusColumn(column, func(int) bool { return false }), map[string]bool{}
		for _, v := range c.values {
			said[v.text] = v.says == paid
		}
		if values := t.rows.of(column); slices.ContainsFunc(c.values, func(v value) bool { return v.says == paid }) {
			return func(i int) bool { return said[text(values[i])] }, t.real(column)
		}
	}
	return nil, ""
}

// statusColumn reads what the rows say of each value of a column.
func (p *Proposal) statusColumn(column string, isPaid func(i int) bool) statusColumn {
	t, s, at := p.table, statusColumn{name: column}, map[string]int{}
	c := t.Columns[column]
	given := labels(t.Comments[column], isInteger(c))
	add := func(v string) *value {
		if i, ok := at[v]; ok {
			return &s.values[i]
		}
		at[v] = len(s.values)
		new := value{text: v, label: given[v]}
		if l := t.Comments[lookupName(column)+" "+v]; l != "" {
			new.label = l
		}
		if new.says = meaningOf(new.label); new.says == unknown && new.label == "" && !isInteger(c) {
			new.says = meaningOf(v)
		}
		if is := compress(column); new.says == unknown && rank("pay", column, nil) > 0 && (strings.HasPrefix(is, "is") || strings.HasPrefix(is, "pa") && !strings.Contains(is, "stat")) {
			new.says = map[string]meaning{"0": unpaid, "1": paid, "false": unpaid, "true": paid}[v] // is_paid
		}
		s.values = append(s.values, new)
		return &s.values[at[v]]
	}
	for _, v := range enumValues(c) {
		add(v)
	}
	for v := range given {
		if isInteger(c) {
			add(v)
		}
	}
	created := instants(p.created.TimeColumn, t.rows.of(strings.ToLower(p.created.Column)))
	newest := p.newest(created, 100)
	for i, x := range t.rows.of(column) {
		if x == nil {
			continue
		}
		v := add(text(x))
		if v.rows++; isPaid != nil && isPaid(i) {
			v.paid++
		}
		if len(created) > i && !created[i].IsZero() && p.now.Sub(created[i]) > 24*time.Hour {
			v.old++
		}
		if newest[i] {
			v.young++
		}
	}
	for i := range s.values {
		v := &s.values[i]
		v.numbers = fmt.Sprintf("%s: %d rows, %d of them older than a day", v.name(), v.rows, v.old)
		if isPaid != nil && v.rows > 0 {
			v.numbers += fmt.Sprintf(", %.0f with a payment", v.paid)
			v.paid /= float64(v.rows)
		}
	}
	slices.SortStableFunc(s.values, func(a, b value) int {
		if a.rows != b.rows {
			return b.rows - a.rows
		}
		return strings.Compare(a.text, b.text)
	})
	return s
}

// newest returns which rows are the newest n.
func (p *Proposal) newest(created []time.Time, n int) map[int]bool {
	at := make([]int, 0, len(created))
	for i, c := range created {
		if !c.IsZero() {
			at = append(at, i)
		}
	}
	slices.SortFunc(at, func(a, b int) int { return created[b].Compare(created[a]) })
	all := map[int]bool{}
	for _, i := range at[:min(n, len(at))] {
		all[i] = true
	}
	return all
}

func (v value) name() string {
	if v.label != "" {
		return v.text + " (" + v.label + ")"
	}
	return v.text
}

// with returns the values that a word or label gives a meaning, if the rows do not contradict it: an unpaid or closed order has no payment.
func (s statusColumn) with(m meaning) (all []value) {
	for _, v := range s.values {
		if v.says == m && (m == paid || v.paid < 0.05) {
			all = append(all, v)
		}
	}
	return all
}

// chooseStatus chooses the column of the status and its values.
func (p *Proposal) chooseStatus(f *Facts, a Answers) {
	t := p.table
	var all []statusColumn
	marks := t.ranked("pay", isStatus)
	for _, column := range slices.Concat(t.ranked("status", isStatus), marks) {
		isPaid, _ := p.paidMark(column)
		if s := p.statusColumn(column, isPaid); len(s.values) <= 60 && (len(s.values) > 1 || t.rows.all) {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		p.Refused = fmt.Sprintf("table %s has no status that a close can change: it needs a column of numbers or text with a value for unpaid and one for closed", t.Name)
		return
	}
	s := all[0] // the most certain name, unless another one has both values by its words
	for _, other := range all[:max(1, len(all)-len(marks))] {
		if len(s.with(unpaid)) == 0 || len(s.closing()) == 0 {
			if len(other.closing()) > 0 && (len(other.with(unpaid)) > 0 || len(s.closing()) == 0) {
				s = other
			}
		}
	}
	p.status.column, p.status.number = t.real(s.name), isInteger(t.Columns[s.name])
	from, fromWhy := p.chooseUnpaid(s, all, a)
	to, toWhy := p.chooseClosed(s, from, a)
	p.status.from, p.status.to = from, to
	p.why["status"] = strings.Trim(fromWhy+"; "+toWhy, "; ")
	for _, v := range s.values {
		switch {
		case v.text == from || v.text == to:
		case v.says == paid || v.says != closed && v.says != timedOut && v.paid > 0.5:
			p.status.paid = append(p.status.paid, v.text)
		default:
			p.status.closed = append(p.status.closed, v.text)
			if v.says != closed && v.says != timedOut && v.rows > 0 {
				p.doubt("status %s is neither unpaid nor paid for this mapping, and stays as it is", v.numbers)
			}
		}
	}
	slices.SortFunc(p.status.paid, inOrder)
	slices.SortFunc(p.status.closed, inOrder)
	rows := t.rows.of(s.name)
	p.status.is = func(m meaning) func(int) bool {
		return func(i int) bool {
			if m == closed {
				return text(rows[i]) == to
			}
			return text(rows[i]) == from && p.meets(i)
		}
	}
	p.excludePaid(s, all)
}

func inOrder(a, b string) int {
	if x, y := number(a), number(b); x != y {
		return int(x - y)
	}
	return strings.Compare(a, b)
}

// meets says that a row meets all conditions.
func (p *Proposal) meets(i int) bool {
	for _, c := range p.where {
		v := p.table.rows.of(strings.ToLower(c.column))[i]
		if c.value == "null" && v != nil || c.value != "null" && strings.Trim(c.value, `"`) != text(v) {
			return false
		}
	}
	return true
}

// closing returns the values of orders that were closed, the ones that time closed first.
func (s statusColumn) closing() []value { return slices.Concat(s.with(timedOut), s.with(closed)) }

// chooseUnpaid chooses the value of unpaid orders.
func (p *Proposal) chooseUnpaid(s statusColumn, all []statusColumn, a Answers) (from, why string) {
	if a.Unpaid != "" {
		return a.Unpaid, "unpaid by --unpaid"
	}
	sure := s.with(unpaid)
	if len(sure) == 1 {
		return sure[0].text, "unpaid: " + sure[0].numbers
	}
	// Nearly all orders that another column calls unpaid, and that are not closed, have one value: that of new orders.
	for _, other := range all {
		if said := other.with(unpaid); other.name != s.name && len(said) == 1 && len(other.with(paid)) > 0 && len(sure) == 0 {
			counts, n := map[string]int{}, 0
			values, own := p.table.rows.of(other.name), p.table.rows.of(s.name)
			for i, v := range values {
				m := s.meaning(text(own[i]))
				if text(v) == said[0].text && m != closed && m != timedOut {
					n++
					counts[text(own[i])]++
				}
			}
			for v, got := range counts {
				if got*20 >= n*19 && n >= 10 && s.meaning(v) != paid {
					return v, fmt.Sprintf("unpaid: %d of %d orders with %s %s", got, n, other.name, said[0].name())
				}
			}
		}
	}
	if first := s.with(fresh); len(sure) == 0 && len(first) == 1 && first[0].young > 0 && p.paysLater(s) && first[0].paid < 0.01 {
		return first[0].text, "unpaid: none is paid, " + first[0].numbers
	}
	q := Question{Flag: "unpaid", Text: fmt.Sprintf("which value of %s.%s have orders that wait for their payment?", p.table.Name, p.status.column)}
	for _, v := range s.values {
		q.Choices, q.Numbers = append(q.Choices, v.text), append(q.Numbers, v.numbers)
	}
	p.ask(q)
	return "", ""
}

func (s statusColumn) meaning(v string) meaning {
	for _, known := range s.values {
		if known.text == v {
			return known.says
		}
	}
	return unknown
}

// paysLater says that the rows tell which orders are paid: most orders of another value are.
func (p *Proposal) paysLater(s statusColumn) bool {
	return slices.ContainsFunc(s.values, func(v value) bool { return v.paid > 0.9 && v.rows > 10 })
}

// chooseClosed chooses the value that a close writes.
func (p *Proposal) chooseClosed(s statusColumn, from string, a Answers) (to, why string) {
	if a.Closed != "" {
		return a.Closed, "closed by --closed"
	}
	byTime, cancelled := s.with(timedOut), s.with(closed)
	switch {
	case len(byTime) == 1:
		return byTime[0].text, "closed by time: " + byTime[0].numbers
	case len(byTime) == 0 && len(cancelled) == 1:
		return cancelled[0].text, "closed: " + cancelled[0].numbers
	case len(byTime) == 0 && len(cancelled) > 1:
		for _, words := range []string{"cancel|取消|quxiao", "close|关闭|guanbi"} {
			best := slices.DeleteFunc(slices.Clone(cancelled), func(v value) bool { return !regexp.MustCompile(words).MatchString(compress(v.label + v.text)) })
			if len(best) == 1 {
				p.doubt("a close writes %s; these values mean nearly the same: %s", best[0].name(), names(cancelled))
				return best[0].text, "closed: " + best[0].numbers
			} else if len(best) > 1 {
				break
			}
		}
	}
	q := Question{Flag: "closed", Text: fmt.Sprintf("which value of %s.%s shall a closed order get?", p.table.Name, p.status.column)}
	for _, v := range s.values {
		if v.text != from && v.says != paid && v.paid < 0.05 {
			q.Choices, q.Numbers = append(q.Choices, v.text), append(q.Numbers, v.numbers)
		}
	}
	p.ask(q)
	return "", ""
}

func names(values []value) string {
	var all []string
	for _, v := range values {
		all = append(all, v.name())
	}
	return strings.Join(all, ", ")
}

// excludePaid adds the condition that no other column calls an unpaid order paid.
func (p *Proposal) excludePaid(s statusColumn, all []statusColumn) {
	own := p.table.rows.of(s.name)
	for _, other := range all {
		said := other.with(unpaid)
		if other.name == s.name || !slices.Contains(p.table.ranked("pay", isStatus), other.name) || len(other.with(paid)) == 0 {
			continue
		}
		if len(said) != 1 {
			p.doubt("%s says too whether an order is paid, and it is not clear by which value: compare it with the examples below", other.name)
			continue
		}
		with, n := 0, 0
		for i, v := range p.table.rows.of(other.name) {
			if text(own[i]) == p.status.from {
				if n++; text(v) == said[0].text {
					with++
				}
			}
		}
		if n > 0 && with == 0 {
			p.doubt("no unpaid order has %s %s, which says unpaid: is the status of unpaid orders right?", other.name, said[0].name())
			continue
		}
		value := said[0].text
		if !isInteger(p.table.Columns[other.name]) {
			value = fmt.Sprintf("%q", value)
		}
		p.where = append(p.where, condition{p.table.real(other.name), value, fmt.Sprintf("%d of %d unpaid orders have it", with, n)})
	}
}
