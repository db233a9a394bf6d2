package propose

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// value is what the rows say of one value of a status.
type value struct {
	text, label     string  // label is what a comment or a table of statuses calls it; "": nothing does
	says            meaning // by its label, or its own word
	rows, old, paid int     // old: older than a day; paid: with a time of payment, or a mark that they are paid
}

// share is how many of the orders are paid, between 0 and 1.
func (v value) share() float64 { return float64(v.paid) / float64(max(v.rows, 1)) }

func (v value) name() string {
	if v.label != "" {
		return v.text + " (" + v.label + ")"
	}
	return v.text
}

func (v value) String() string {
	return fmt.Sprintf("%s: %d rows, %d of them older than a day, %d with a payment", v.name(), v.rows, v.old, v.paid)
}

func names(values []value) string {
	var all []string
	for _, v := range values {
		all = append(all, v.name())
	}
	return strings.Join(all, ", ")
}

// statusColumn is a column with a status, and its values, those with the most rows first.
type statusColumn struct {
	name   string
	values []value
}

// with returns the values with a meaning, if the rows do not contradict it: unpaid orders have no payment, and only refunded ones are closed with one.
func (s statusColumn) with(all ...meaning) []value {
	return slices.DeleteFunc(slices.Clone(s.values), func(v value) bool {
		most := map[meaning]float64{unpaid: 0.05, fresh: 0.01, paid: 1}
		limit, known := most[v.says]
		return !slices.Contains(all, v.says) || v.share() > limit && known || !known && v.share() >= 0.5
	})
}

// find returns what is known of a value.
func (s statusColumn) find(text string) value {
	for _, v := range s.values {
		if v.text == text {
			return v
		}
	}
	return value{}
}

// waiting returns the only value whose orders are not paid and nearly all new; an empty one: there is none, or another one has many new orders too.
func (s statusColumn) waiting() (only value) {
	for _, v := range s.values {
		switch new := v.rows - v.old; {
		case v.share() >= 0.01 || v.says == closed || v.says == timedOut || new*5 < v.rows || v.rows == 0:
		case new*5 < v.rows*4 || v.rows < 20 || only.rows > 0:
			return value{}
		default:
			only = v
		}
	}
	return only
}

// statusChoice is the status of the mapping.
type statusChoice struct {
	column       string
	number       bool
	from, to     string
	paid, closed []string
	is           func(meaning) func(i int) bool // whether the i-th row read is unpaid, or closed
}

// readLookups reads the tables that name the values of a status.
func (f *Facts) readLookups(ctx context.Context, t *Table) error {
	for _, column := range t.ranked("status", isInteger) {
		for _, l := range f.Tables {
			of := tokens(l.Name)
			if l == t || l.View || !has(of, "statusWords") || has(of, "pastWords") {
				continue
			}
			key := l.key()
			for _, c := range l.columns { // a table of names in several languages has a key of two columns
				if compress(c) == compress(column) || strings.HasPrefix(compress(c), "idorderstat") {
					key = c
				}
			}
			label := l.first("label", isText)
			refers := l.is(t.Columns[column].RefersTo) || compress(key) == compress(column) || strings.Contains(compress(l.Name), "orderstat")
			if key == "" || label == "" || !refers {
				continue
			}
			query := "SELECT " + mapping.Quote(l.real(key)) + ", " + mapping.Quote(l.real(label)) + " FROM " + mapping.Quote(l.Name) + " LIMIT 200"
			rows, err := f.reader.query(ctx, query)
			if err != nil {
				return fmt.Errorf("table %s: %w", l.Name, err)
			}
			for _, row := range rows {
				if known := t.labels[column]; known == nil {
					t.labels[column] = map[string]string{text(row[0]): text(row[1])}
				} else if meaningOf(known[text(row[0])]) == unknown {
					known[text(row[0])] = text(row[1])
				}
			}
		}
	}
	return nil
}

// paidMark returns which rows have a time of payment, or a mark in another column than except; nil: the table does not say it.
func (p *Proposal) paidMark(except string) func(i int) bool {
	t := p.table
	for _, column := range t.ranked("paidat", isTime) {
		values := t.rows.of(column)
		if part, n := share(values, nil); !t.Columns[column].OnUpdate && n > 0 && part > 0.02 && part < 0.995 {
			return func(i int) bool { return holds(values[i]) }
		}
	}
	for _, column := range t.ranked("pay", isStatus) {
		if s := p.statusColumn(column, nil); column != except && len(s.with(paid)) > 0 {
			values := t.rows.of(column)
			return func(i int) bool { return s.find(text(values[i])).says == paid }
		}
	}
	return nil
}

// statusColumn reads what the rows say of each value of a column.
func (p *Proposal) statusColumn(column string, isPaid func(i int) bool) statusColumn {
	t, s := p.table, statusColumn{name: column}
	c, given := t.Columns[column], t.labels[column]
	at := map[string]int{}
	add := func(v string) *value {
		if _, known := at[v]; !known {
			at[v] = len(s.values)
			new := value{text: v, label: given[v], says: meaningOf(given[v])}
			mark := slices.Contains(lists["markWords"], compress(column))
			switch {
			case new.label == "" && !isInteger(c) && c.Type != "boolean":
				new.says = meaningOf(v)
			case new.says == unknown && mark: // is_paid
				new.says = map[string]meaning{"0": unpaid, "1": paid, "false": unpaid, "true": paid}[v]
			}
			s.values = append(s.values, new)
		}
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
	for i, x := range t.rows.of(column) {
		if x == nil {
			continue
		}
		v := add(text(x))
		v.rows++
		if isPaid != nil && isPaid(i) {
			v.paid++
		}
		if len(created) > i && !created[i].IsZero() && p.now.Sub(created[i]) > 24*time.Hour {
			v.old++
		}
	}
	slices.SortStableFunc(s.values, func(a, b value) int { return cmp.Or(b.rows-a.rows, inOrder(a.text, b.text)) })
	return s
}

func inOrder(a, b string) int {
	return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
}

// chooseStatus chooses the column of the status and its values.
func (p *Proposal) chooseStatus(f *Facts, a Answers) {
	t, marks := p.table, p.table.ranked("pay", isStatus)
	var all []statusColumn
	for _, column := range slices.Concat(t.ranked("status", isStatus), marks) {
		if s := p.statusColumn(column, p.paidMark(column)); len(s.values) <= 60 && (len(s.values) > 1 || t.rows.all) {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		p.Refused = fmt.Sprintf("table %s has no status that a close can change: a column of numbers or text with a value for unpaid and one for closed", t.Name)
		return
	}
	s := all[0] // the most certain name, unless another one says more
	for _, other := range all[1:] {
		says := func(s statusColumn) int { return min(len(s.with(unpaid)), 1) + 2*min(len(s.with(closed, timedOut)), 1) }
		if says(other) > says(s) && !slices.Contains(marks, other.name) {
			s = other
		}
	}
	c := &p.status
	c.column, c.number = t.real(s.name), isInteger(t.Columns[s.name])
	for flag, v := range map[string]string{"unpaid": a.Unpaid, "closed": a.Closed} {
		if known := s.find(v); v != "" && len(s.values) > 0 && known.text == "" && (flag == "unpaid" || p.status.number != isNumber(v)) {
			p.Refused = fmt.Sprintf("--%s %s: %s.%s has no such value; it has %s", flag, v, t.Name, c.column, names(s.values))
		} else if known.share() > 0.5 || flag == "unpaid" && known.share() > 0.05 {
			p.Refused = fmt.Sprintf("--%s %s: those orders are paid: %s", flag, v, known)
		}
	}
	var fromWhy, toWhy string
	c.from, fromWhy = p.chooseUnpaid(s, all, a)
	c.to, toWhy = p.chooseClosed(s, a)
	p.why["status"] = strings.Trim(fromWhy+"; "+toWhy, "; ")
	for _, v := range s.values {
		switch {
		case v.text == c.from || v.text == c.to:
		case v.says == paid || v.says != closed && v.says != timedOut && v.share() > 0.5:
			c.paid = append(c.paid, v.text)
		default:
			if c.closed = append(c.closed, v.text); v.says != closed && v.says != timedOut && v.rows > 0 {
				p.doubt("status %s is neither unpaid nor paid for this mapping, and stays as it is", v)
			}
		}
	}
	slices.SortFunc(c.paid, inOrder)
	slices.SortFunc(c.closed, inOrder)
	rows := t.rows.of(s.name)
	c.is = func(m meaning) func(int) bool {
		return func(i int) bool {
			return m == closed && text(rows[i]) == c.to || m == unpaid && text(rows[i]) == c.from && p.meets(i)
		}
	}
	p.excludePaid(rows, all, marks)
	for _, other := range all { // a second status that follows the first
		if other.name == s.name || slices.Contains(marks, other.name) {
			continue
		}
		counts, open, n := map[string]int{}, map[string]int{}, 0
		for i, v := range t.rows.of(other.name) {
			if text(rows[i]) == c.to {
				n++
				counts[text(v)]++
			} else if text(rows[i]) == c.from {
				open[text(v)]++
			}
		}
		for v, got := range counts {
			if got*20 >= n*19 && n >= 20 && len(open) > 0 && open[v] == 0 {
				why := fmt.Sprintf("%d of %d closed orders have it, and no unpaid one", got, n)
				p.set = append(p.set, condition{t.real(other.name), literal(v, t.Columns[other.name]), why})
			}
		}
	}
}

func isNumber(v string) bool {
	_, err := strconv.ParseInt(v, 10, 64)
	return err == nil
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

// chooseUnpaid chooses the value of unpaid orders.
func (p *Proposal) chooseUnpaid(s statusColumn, all []statusColumn, a Answers) (from, why string) {
	if a.Unpaid != "" {
		return a.Unpaid, "unpaid by --unpaid"
	}
	sure, first, new := s.with(unpaid), s.with(fresh), s.waiting()
	// Nearly all orders that another column calls unpaid, and that are not closed, have one value: that of new orders.
	for _, other := range all {
		said, own, counts, n := other.with(unpaid), p.table.rows.of(s.name), map[string]int{}, 0
		if other.name == s.name || len(said) != 1 || len(other.with(paid)) == 0 || len(sure) > 0 {
			continue
		}
		for i, v := range p.table.rows.of(other.name) {
			if m := s.find(text(own[i])).says; text(v) == said[0].text && m != closed && m != timedOut {
				n++
				counts[text(own[i])]++
			}
		}
		for v, got := range counts {
			if got*20 >= n*19 && n >= 10 && s.find(v).says != paid {
				return v, fmt.Sprintf("unpaid: %d of %d orders with %s %s", got, n, other.name, said[0].name())
			}
		}
	}
	tells := slices.ContainsFunc(s.values, func(v value) bool { return v.share() > 0.9 && v.rows > 10 }) // the rows tell which orders are paid
	switch {
	case len(sure) == 1:
		return sure[0].text, "unpaid: " + sure[0].String()
	case len(sure) == 0 && len(first) == 1 && first[0].rows > first[0].old && tells:
		return first[0].text, "unpaid: none is paid, " + first[0].String()
	case len(sure) == 0 && new.rows > 0 && tells:
		return new.text, "unpaid: none is paid and nearly all are new, " + new.String()
	}
	q := Question{Flag: "unpaid", Text: fmt.Sprintf("which value of %s.%s have orders that wait for their payment?", p.table.Name, p.status.column)}
	for _, v := range s.values {
		q.Choices, q.Numbers = append(q.Choices, v.text), append(q.Numbers, v.String())
	}
	p.ask(q)
	return "", ""
}

// chooseClosed chooses the value that a close writes.
func (p *Proposal) chooseClosed(s statusColumn, a Answers) (to, why string) {
	byTime, cancelled := s.with(timedOut), s.with(closed)
	switch {
	case a.Closed != "":
		return a.Closed, "closed by --closed"
	case len(byTime) == 1:
		return byTime[0].text, "closed by time: " + byTime[0].String()
	case len(byTime) == 0 && len(cancelled) == 1:
		return cancelled[0].text, "closed: " + cancelled[0].String()
	case len(byTime) == 0:
		for _, words := range []string{"关闭|guanbi", "cancel|取消|quxiao", "close"} {
			best := slices.DeleteFunc(slices.Clone(cancelled), func(v value) bool { return !regexp.MustCompile(words).MatchString(compress(v.label + v.text)) })
			if len(best) == 1 {
				p.doubt("a close writes %s; these values mean nearly the same: %s", best[0].name(), names(cancelled))
				return best[0].text, "closed: " + best[0].String()
			} else if len(best) > 1 {
				break
			}
		}
	}
	q := Question{Flag: "closed", Text: fmt.Sprintf("which value of %s.%s shall a closed order get?", p.table.Name, p.status.column)}
	for _, v := range s.values {
		if v.text != p.status.from && v.says != paid && v.share() < 0.5 {
			q.Choices, q.Numbers = append(q.Choices, v.text), append(q.Numbers, v.String())
		}
	}
	if len(q.Choices) == 0 {
		p.Refused = fmt.Sprintf("%s.%s has no value for a closed order: %s. Let the shop know another one, and name it: --closed; "+
			"or write the mapping by hand if a close is written elsewhere",
			p.table.Name, p.status.column, names(s.values))
	}
	p.ask(q)
	return "", ""
}

// excludePaid adds the conditions that no mark calls an unpaid order paid: by its words, or because nearly all unpaid orders have a value that few
// paid ones have.
func (p *Proposal) excludePaid(own []any, all []statusColumn, marks []string) {
	for _, mark := range all {
		if !slices.Contains(marks, mark.name) || p.table.real(mark.name) == p.status.column {
			continue
		}
		open, done, n, most := map[string]int{}, map[string]int{}, 0, ""
		for i, v := range p.table.rows.of(mark.name) {
			if text(own[i]) == p.status.from {
				n++
				if open[text(v)]++; open[text(v)] > open[most] {
					most = text(v)
				}
			} else if slices.Contains(p.status.paid, text(own[i])) {
				done[text(v)]++
				done[""]++
			}
		}
		said := mark.with(unpaid)
		if len(said) == 1 && (n == 0 || open[said[0].text] > 0) {
			most = said[0].text
		} else if open[most]*20 < n*19 || done[most]*2 > done[""] || n < 10 {
			if len(mark.with(paid)) > 0 {
				p.doubt("%s says too whether an order is paid, and no value of it is that of the unpaid orders: compare it with the examples below", mark.name)
			}
			continue
		}
		why := fmt.Sprintf("%d of %d unpaid orders have it", open[most], n)
		p.where = append(p.where, condition{p.table.real(mark.name), literal(most, p.table.Columns[mark.name]), why})
	}
}

// literal writes a value of a column for topics.yaml.
func literal(v string, c mapping.Column) string {
	if isInteger(c) {
		return v
	}
	return fmt.Sprintf("%q", v)
}
