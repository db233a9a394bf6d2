package propose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is what the rows say of one value of a status.
type value struct {
	text, label     string  // label is what a comment or a table of statuses calls it; "": nothing does
	says            meaning // by its label, or its own word
	rows, old, paid int     // old: older than a day; paid: with a time of payment, or a mark that they are paid
	cart            bool    // its rows are carts
}

func (v value) share() float64 { return float64(v.paid) / float64(max(v.rows, 1)) }

// waitsForOthers matches words for orders that may wait for somebody else than the customer, such as one who has to accept a booking.
var waitsForOthers = regexp.MustCompile(lists["somebody"][0])

func (v value) waitsForOthers() bool {
	return waitsForOthers.MatchString(compress(cmp.Or(v.label, v.text)))
}

func (v value) ended() bool { return v.says == closed || v.says == timedOut }

func (v value) name() string {
	if v.label != "" {
		return v.text + " (" + v.label + ")"
	}
	return v.text
}

func (v value) String() string {
	return fmt.Sprintf("%s: %d rows, %d of them older than a day, %d with a payment", v.name(), v.rows, v.old, v.paid)
}

func names(values []value) (all string) {
	for _, v := range values {
		all += ", " + v.name()
	}
	return strings.TrimPrefix(all, ", ")
}

// statusColumn is a column with a status, and its values, those with the most rows first.
type statusColumn struct {
	*column
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

func (s statusColumn) find(text string) value {
	if i := slices.IndexFunc(s.values, func(v value) bool { return v.text == text }); i >= 0 {
		return s.values[i]
	}
	return value{}
}

// tells says that the rows tell which orders are paid.
func (s statusColumn) tells() bool {
	return slices.ContainsFunc(s.values, func(v value) bool { return v.share() > 0.9 && v.rows > 10 })
}

// waiting returns the only value whose orders are not paid and nearly all new; an empty one: there is none, or another one has many new orders too.
func (s statusColumn) waiting() (only value) {
	for _, v := range s.values {
		switch new := v.rows - v.old; {
		case v.share() >= 0.01 || v.ended() || new*5 < v.rows || v.rows == 0:
		case new*5 < v.rows*4 || v.rows < 20 || only.rows > 0:
			return value{}
		default:
			only = v
		}
	}
	return only
}

// readLookups reads the tables that name the values of a status or of a way to pay.
func (f *Facts) readLookups(ctx context.Context, t *Table) {
	for _, c := range append(t.ranked("status"), t.ranked("method")...) {
		for _, l := range f.Tables {
			of := tokens(l.Name)
			if l == t || l.View || !isInteger(c) || !has(of, "statusWords") && !c.refersTo(l) || has(of, "pastWords") {
				continue
			}
			key, label, named := l.key(), l.first("label"), strings.Contains(compress(l.Name), "orderstat")
			for _, k := range l.columns { // a table of names in several languages has a key of two columns
				if compress(k.key) == compress(c.key) || strings.HasPrefix(compress(k.key), "idorderstat") {
					key, named = k, named || compress(k.key) == compress(c.key)
				}
			}
			if key == nil || label == nil || !named && !c.refersTo(l) {
				continue
			}
			rows, _ := f.query(ctx, selecting(key, label)+" LIMIT 200")
			for _, row := range rows {
				if v := text(row[0]); meaningOf(c.labels[v]) == unknown {
					c.labels[v] = text(row[1])
				}
			}
		}
	}
}

// paidMark returns which rows have a time of payment, or a mark in another column than except. The table may not say it: then none has.
func (p *Proposal) paidMark(except *column) func(row int) bool {
	for _, c := range p.table.ranked("paidat") {
		if part, n := c.share(anyRow); !c.OnUpdate && n > 0 && part > 0.02 && part < 0.995 {
			return func(row int) bool { return holds(c.rows[row]) }
		}
	}
	for _, c := range p.table.ranked("pay") {
		if s := p.statusColumn(c, noRow); c != except && len(s.with(paid)) > 0 {
			return func(row int) bool { return s.find(text(c.rows[row])).says == paid }
		}
	}
	if part, _ := p.table.paid.share(anyRow); part > 0.02 && part < 0.995 {
		return func(row int) bool { return holds(p.table.paid.rows[row]) }
	}
	return noRow
}

// says returns what a value says, by its label or its own word.
func (c *column) says(value string) meaning {
	label := c.label(value)
	if label == "" && !isInteger(c) && c.Type != "boolean" {
		label = value
	}
	if what := meaningOf(label); what != unknown || !slices.Contains(lists["markWords"], compress(c.key)) { // is_paid
		return what
	}
	return map[string]meaning{"0": unpaid, "1": paid, "false": unpaid, "true": paid}[value]
}

var enumValue = regexp.MustCompile(`'((?:[^']|'')*)'`)

// statusColumn reads what the rows say of each value of a column.
func (p *Proposal) statusColumn(c *column, isPaid func(row int) bool) statusColumn {
	s := statusColumn{column: c}
	rows, _, _ := c.count(func(row int) bool { return c.rows[row] != nil })
	done, _, _ := c.count(isPaid)
	old, _, _ := c.count(func(row int) bool {
		created := p.created.at[row]
		return !created.IsZero() && p.f.Now.Sub(created) > 24*time.Hour
	})
	for _, m := range enumValue.FindAllStringSubmatch(c.Definition, -1) {
		rows[strings.ReplaceAll(m[1], "''", "'")] += 0
	}
	for text := range c.labels {
		if isInteger(c) {
			rows[text] += 0
		}
	}
	for text, n := range rows {
		s.values = append(s.values, value{text: text, label: c.label(text), says: c.says(text), rows: n, old: old[text], paid: done[text]})
	}
	for i, v := range s.values { // those that ended at one age were closed by time
		if v.says == closed || v.says == unknown && s.tells() && v.share() < 0.5 {
			if d, _, _ := p.edge(func(row int) bool { return text(c.rows[row]) == v.text && !isPaid(row) }); d > 0 {
				s.values[i].says = timedOut
			}
		}
	}
	slices.SortFunc(s.values, func(a, b value) int { return cmp.Or(b.rows-a.rows, inOrder(a.text, b.text)) })
	return s
}

func inOrder(a, b string) int {
	return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
}

// markCarts marks the values of carts, if carts and orders are one table: no cart has the time when an order is placed.
func (p *Proposal) markCarts(s statusColumn) {
	c := p.table.first("placed")
	placed, _, _ := s.count(func(row int) bool { return c != nil && holds(c.rows[row]) })
	cart := func(v value) bool { return v.rows > 0 && placed[v.text] == 0 && !v.ended() }
	named := func(v value) bool { return cart(v) && has(tokens(v.text+" "+v.label), "cartWords") }
	order := func(v value) bool { // then it is the time of a delivery
		return cart(v) && (v.share() > 0.01 || v.says == fresh || v.says == unpaid || v.says == paid && v.old*2 > v.rows)
	}
	for i := range s.values {
		s.values[i].cart = cart(s.values[i]) && c != nil && slices.ContainsFunc(s.values, named) && !slices.ContainsFunc(s.values, order)
	}
}

// nothingWaits says why no order seems to wait for its payment; "": some may. It needs words for the values, and enough rows.
func (p *Proposal) nothingWaits(s statusColumn, all []statusColumn) string {
	says := func(m meaning) bool {
		return slices.ContainsFunc(all, func(s statusColumn) bool {
			return slices.ContainsFunc(s.values, func(v value) bool { return v.says == m })
		})
	}
	if len(s.rows) < 200 || p.table.first("due") != nil || !says(closed) || !says(paid) || says(unpaid) {
		return ""
	}
	var why []string
	for _, v := range s.values {
		switch {
		case v.rows == 0 || v.ended() || !v.cart && v.says == paid:
		case v.cart:
			why = append(why, v.name()+": carts")
		case s.tells() || v.rows < 20 || v.old*3 <= v.rows:
			return ""
		default:
			why = append(why, v.String()+map[bool]string{true: ", and no name: perhaps no orders yet"}[v.label == "" && isInteger(s.column)])
		}
	}
	return fmt.Sprintf("no order of %s seems to wait for its payment: no value of %s says so, and none is of new orders only (%s). If the shop takes the payment "+
		"before the order, answer none. Else name their status, which may be one that no row has yet", p.table.Name, s.Name,
		strings.Join(why, "; "))
}

func (p *Proposal) chooseStatus() {
	t, marks := p.table, p.table.ranked("pay")
	var all []statusColumn
	for _, c := range slices.Concat(t.ranked("status"), marks) {
		if s := p.statusColumn(c, p.paidMark(c)); len(s.values) <= 60 && (len(s.values) > 1 || t.all) {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		p.refuse("table %s has no status that a close can change: a column of numbers or text with a value for unpaid and one for closed", t.Name)
		return
	}
	says := func(s statusColumn) int { return min(len(s.with(unpaid)), 1) + 2*min(len(s.with(closed, timedOut)), 1) }
	s := all[0] // the most certain name, unless another one says more
	for _, other := range all[1:] {
		if says(other) > says(s) && !slices.Contains(marks, other.column) {
			s = other
		}
	}
	p.markCarts(s)
	if p.a.Unpaid == "none" {
		p.refuse("--unpaid none: an order of %s never waits for its payment, so there is nothing to close. If the shop shall take orders before they are paid, "+
			"let it give them a status of their own, and run init again with its name", t.Name)
		return
	}
	why := p.nothingWaits(s, all)
	if why != "" && p.a.Unpaid != "" {
		p.Doubts = slices.Insert(p.Doubts, 0, why)
	}
	first, also := p.a.unpaid(s)
	for i, v := range append([]string{p.a.Closed, first}, also...) {
		flag := map[bool]string{true: "closed", false: "unpaid"}[i == 0]
		_, err := strconv.ParseInt(v, 10, 64)
		known := s.find(v)
		if fits := err == nil || !isInteger(s.column) && s.Type != "enum" && s.Type != "boolean"; v != "" && known.text == "" && !fits {
			p.refuse("--%s %s: %s.%s has no such value; it has %s", flag, v, t.Name, s.Name, names(s.values))
		} else if flag == "closed" && known.share() > 0.5 || known.share() > 0.95 { // what else is paid is excluded, or a question
			p.refuse("--%s %s: those orders are paid: %s", flag, v, known)
		} else if known.cart {
			p.refuse("--%s %s: those rows are carts, and hold nothing: %s", flag, v, known)
		}
	}
	p.from, p.to, p.isPaid = condition{column: s.column, also: also}, condition{column: s.column}, p.paidMark(s.column)
	if why != "" && p.a.Unpaid == "" {
		p.askValue("unpaid", why, s.values)
	} else {
		p.chooseUnpaid(s, all)
	}
	p.chooseClosed(s)
	p.why["status"] = strings.Trim(p.from.why+"; "+p.to.why, "; ")
	for _, v := range s.values {
		switch {
		case v.text == p.from.value || v.text == p.to.value || slices.Contains(also, v.text):
		case v.says == paid || !v.ended() && v.share() > 0.5:
			p.paid = append(p.paid, v.text)
		default:
			if p.closed = append(p.closed, v.text); !v.ended() && v.rows > 0 {
				p.doubt("orders with the status %s stay as they are, as closed ones do: if they are paid, move it to paid in orders.status", v)
			}
		}
	}
	slices.SortFunc(p.paid, inOrder)
	slices.SortFunc(p.closed, inOrder)
	for _, v := range append([]string{first, p.a.Closed}, also...) {
		if known := s.find(v); v != "" && known.rows == 0 && known.label == "" {
			p.doubt("no row has %s %s yet: does your shop know it?", s.Name, v)
		}
	}
	p.keepAnswered()
	p.excludeMoney()
	for _, other := range all {
		if other.column == s.column {
			continue
		}
		if slices.Contains(marks, other.column) {
			p.excludePaid(other)
			continue
		}
		counts, n, usual := other.count(p.to.in) // a second status that follows the first
		open, _, _ := other.count(p.from.in)
		if usual != "" && n >= 20 && len(open) > 0 && open[usual] == 0 {
			why := fmt.Sprintf("%d of %d closed orders have it, and no unpaid one", counts[usual], n)
			p.set = append(p.set, condition{column: other.column, value: usual, why: why})
		}
	}
}

// unpaid returns the first value of the answer, and its others.
func (a Answers) unpaid(s statusColumn) (first string, also []string) {
	if s.find(a.Unpaid).text != "" {
		return a.Unpaid, nil
	}
	all := strings.Split(a.Unpaid, ",")
	return all[0], all[1:]
}

func (p *Proposal) askValue(flag, text string, values []value) {
	q := Question{Flag: flag, Text: text}
	for _, v := range values {
		q.Numbers = append(q.Numbers, v.String())
	}
	p.ask(q)
}

func (p *Proposal) chooseUnpaid(s statusColumn, all []statusColumn) {
	choose := func(v, why string) { p.from.value, p.from.why = v, why }
	if p.a.Unpaid != "" {
		first, _ := p.a.unpaid(s)
		choose(first, "unpaid by --unpaid")
		return
	}
	sure, first, new := s.with(unpaid), s.with(fresh), s.waiting()
	// Nearly all orders that another column calls unpaid, and that are not closed, have one value: that of new orders.
	for _, other := range all {
		said := other.with(unpaid)
		if other.column == s.column || len(said) != 1 || len(other.with(paid)) == 0 || len(sure) > 0 {
			continue
		}
		counts, n, usual := s.count(func(row int) bool { return text(other.rows[row]) == said[0].text && !s.find(text(s.rows[row])).ended() })
		if usual != "" && n >= 10 && s.find(usual).says != paid {
			choose(usual, fmt.Sprintf("unpaid: %d of %d orders with %s %s", counts[usual], n, other.Name, said[0].name()))
			return
		}
	}
	several := slices.ContainsFunc(first, func(v value) bool { return v.rows > 0 && v.share() < 0.01 }) // two statuses before the payment
	switch {
	case len(sure) == 1 && !several:
		choose(sure[0].text, "unpaid: "+sure[0].String())
	case len(sure) == 0 && len(first) == 1 && first[0].rows > first[0].old && s.tells() && !first[0].waitsForOthers():
		choose(first[0].text, "unpaid: none is paid, "+first[0].String())
	case len(sure) == 0 && new.rows > 0 && s.tells() && !new.waitsForOthers():
		choose(new.text, "unpaid: none is paid and nearly all are new, "+new.String())
	default:
		p.askValue("unpaid", fmt.Sprintf("which value of %s.%s have orders that wait for their payment, and for nobody else? A value, which may be one that no "+
			"row has yet, several with commas between them, or none", p.table.Name, s.Name), s.values)
	}
}

func (p *Proposal) chooseClosed(s statusColumn) {
	if p.a.Closed != "" {
		p.to.value, p.to.why = p.a.Closed, "closed by --closed"
		return
	}
	best, why := s.with(timedOut), "closed by time: "
	if len(best) == 0 {
		best, why = s.with(closed), "closed: "
	}
	if len(best) == 1 {
		p.to.value, p.to.why = best[0].text, why+best[0].String()
		return
	}
	values := slices.DeleteFunc(slices.Clone(s.values), func(v value) bool { return v.text == p.from.value || v.says == paid || v.share() >= 0.5 })
	if len(values) == 0 {
		p.askValue("closed", fmt.Sprintf("%s.%s has no value for a closed order: %s. Let the shop know another one, and name it here; or write the mapping by hand "+
			"if a close is written elsewhere", p.table.Name, s.Name, names(s.values)), nil)
		return
	}
	p.askValue("closed", fmt.Sprintf("which value of %s.%s shall a closed order get? It may be one that no row has yet", p.table.Name, s.Name), values)
}

// excludePaid adds a condition on a column that marks paid orders: a close leaves an unpaid order out if this mark calls it paid. The value of
// unpaid orders is known by its word, or most unpaid orders have it and few paid ones. NULL is another such value. Others are a question.
func (p *Proposal) excludePaid(mark statusColumn) {
	called := filter{column: mark.column, not: true, why: "what it calls paid stays open"}
	for _, v := range mark.with(paid) {
		called.values = append(called.values, v.text)
	}
	if answer, answered := p.kept(mark.Name); answered {
		i := slices.IndexFunc(p.where, func(f filter) bool { return f.column == mark.column })
		if i >= 0 && p.where[i].not && len(answer) > 0 {
			p.where[i].values = append(p.where[i].values, called.values...)
		} else if i < 0 && len(called.values) > 0 {
			p.where = append(p.where, called)
		}
		return
	}
	open, n, _ := mark.count(p.from.in)
	done, nDone, _ := mark.count(func(row int) bool { return slices.Contains(p.paid, text(p.from.rows[row])) })
	said, usual := mark.with(unpaid), ""
	for v, got := range open {
		if v != "" && got > open[usual] {
			usual = v
		}
	}
	switch {
	case mark.Type == "bit" && !isBit(mark.column):
		return
	case len(said) == 1 && (n == 0 || open[said[0].text] > 0):
		usual = said[0].text
	case (usual == "" || done[usual]*2 > nDone || n < 10) && len(called.values) > 0:
		p.where = append(p.where, called)
		return
	case usual == "" || done[usual]*2 > nDone || n < 10:
		if len(open) > 1 {
			p.doubt("%s may say too whether an order is paid, and no value of it is that of the unpaid orders: compare it with the examples below", mark.Name)
		}
		return
	}
	f := filter{column: mark.column, values: []string{usual}, null: mark.Nullable && done[""]*20 <= nDone}
	f.why = fmt.Sprintf("%d of %d unpaid orders have it", open[usual]+map[bool]int{true: open[""]}[f.null], n)
	p.where = append(p.where, f)
	others := func(row int) bool {
		return p.from.in(row) && !f.accepts(f.rows[row]) && !slices.Contains(called.values, text(f.rows[row]))
	}
	if counts, n, _ := mark.count(others); n > 0 {
		p.ask(Question{Flag: "keep", Key: mark.Name + "=", Text: fmt.Sprintf("%d unpaid orders, such as %s, have another %s than %s: %s", n, p.examples(others),
			mark.Name, f, strings.Join(slices.Sorted(maps.Keys(counts)), ", ")),
			Choices: "Which of these values stay open? Values, with commas between them; none: they close"})
	}
}

// excludeMoney excludes unpaid orders that have a time of payment, and asks about other signs of money.
func (p *Proposal) excludeMoney() {
	for _, c := range p.table.ranked("paidat") {
		set, n := c.share(p.unpaid)
		unset, ok := c.unset()
		if _, answered := p.kept(c.Name); set == 0 || answered {
			continue
		}
		if unset.why = fmt.Sprintf("%.0f of %d unpaid orders have it, and stay open", set*float64(n), n); ok && set <= 0.5 {
			p.where = append(p.where, unset)
		} else {
			p.askKeep(c, "money may have come for %s")
		}
	}
	for _, c := range p.table.ranked("paidtoo") {
		set, _ := c.share(p.unpaid)
		all, _ := c.share(anyRow) // then it says nothing of an order
		if _, answered := p.kept(c.Name); set > 0 && all < 1 && !answered {
			p.askKeep(c, "money may have come for %s")
		}
	}
	name := strings.Join(p.table.paidIn, ",")
	part, n := p.table.paid.share(p.unpaid)
	if _, answered := p.kept(name); part > 0 && !answered && p.notBefore.IsZero() {
		paid := func(row int) bool { return p.unpaid(row) && holds(p.table.paid.rows[row]) }
		choices := "none: they close; unknown: whatever is overdue now stays open"
		if part*float64(n) <= maxIDs && p.id.Type != "uuid" {
			choices = "ids: just these stay open, as after a lost callback; " + choices
		}
		p.ask(Question{Flag: "keep", Key: name + "=", Text: fmt.Sprintf("%.0f of %d unpaid orders have a payment in %s, such as %s: a close would cancel them",
			part*float64(n), n, name, p.examples(paid)), Choices: choices})
	}
	for _, t := range p.f.unread {
		p.doubt("whether table %s has payments of unpaid orders is not known: it could not be read in time", t)
	}
}
