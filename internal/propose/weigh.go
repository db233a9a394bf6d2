package propose

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// candidate is a table that may be that of the orders.
type candidate struct {
	*Table
	score   int
	reasons []string
	against string // why it is certainly no table of orders; "": nothing is
	byName  bool   // against is a reason of its name alone
}

var digits = regexp.MustCompile(`(^|\D)20\d\d`)

// Weights of what makes a table that of the orders. They were chosen so that no single one decides.
const (
	enough = 8 // what a table needs
	ahead  = 3 // how far it must be ahead of the next one
)

// candidates returns the tables that may be that of the orders, the best first; at most three.
func (f *Facts) candidates(named string) (all []candidate) {
	some := slices.ContainsFunc(f.Tables, func(t *Table) bool { return isOrders(t.Name) })
	for _, t := range f.Tables {
		c := f.weigh(t)
		if named != "" && (strings.EqualFold(t.Name, named) || t.Pattern == named) ||
			named == "" && c.score >= enough-2 && c.against == "" && isOrders(t.Name) == some {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return b.score - a.score })
	return all[:min(len(all), 3)]
}

// isOrders says that a name has to do with orders.
func isOrders(name string) bool {
	last := strings.TrimSuffix(compress(name), "s")
	return has(tokens(name), "orderWords") || strings.HasSuffix(last, "order") || strings.HasSuffix(last, "dingdan")
}

// weigh weighs a table by its name, its columns and the tables that refer to it.
func (f *Facts) weigh(t *Table) candidate {
	c := candidate{Table: t}
	add := func(n int, reason string) {
		if c.score += n; reason != "" {
			c.reasons = append(c.reasons, reason)
		}
	}
	of := tokens(months.ReplaceAllString(t.Name, "$1"))
	rest := slices.DeleteFunc(slices.Clone(of), func(w string) bool {
		return slices.Contains(lists["orderWords"], w) || slices.Contains(lists["plainWords"], w)
	})
	joined := compress(months.ReplaceAllString(t.Name, "$1"))
	switch named := isOrders(joined) || has(of, "orderWords"); {
	case t.View:
		c.against = "it is a view: a close needs the table below it"
	case t.unread != "":
		c.against = t.unread
	case f.parts[strings.TrimRight(t.Name, "0123456789")] > 1:
		c.against = "the orders are spread over several tables by a number. Only tables by month are read as one (docs/mapping.md, Shards)"
	case t.Pattern == "" && digits.MatchString(t.Name):
		c.against, c.byName = "its name has a date: it looks like a copy or an archive", true
	case has(of, "otherWords"):
		c.against, c.byName = "its name says that it holds something else", true
	case named && len(rest) == 0:
		add(6, "its name")
	case named:
		add(4, "its name")
	}
	if has(of, "softWords") {
		add(-2, "")
	}
	if s := t.first("status"); s != nil {
		add(2, "the column "+s.Name)
	} else if s := t.first("pay"); s != nil {
		add(1, "the column "+s.Name)
	} else if c.against == "" || c.byName {
		c.against, c.byName = "it has no status: a column of numbers or text", false
	}
	if created := t.first("created"); created != nil {
		add(1, "the column "+created.Name)
	} else if t.first("due") == nil && (c.against == "" || c.byName) {
		c.against, c.byName = "it has no time of creation: a DATETIME, a TIMESTAMP or unix time", false
		for _, column := range t.columns {
			if is(column, "datetime timestamp timestamptz") {
				c.against += "; name one: --created " + column.Name
			}
		}
	}
	for _, role := range words("money buyer number paidat") {
		if t.first(role) != nil {
			add(1, "")
		}
	}
	if lines := f.lineTables(t); len(lines) > 0 {
		add(3, "lines in "+lines[0].Name)
	}
	slices.Sort(c.reasons)
	return c
}

// refersTo returns the columns of a table that hold the order of a row.
func (t *Table) refersTo(orders *Table) (all []*column) {
	var names []string
	if isOrders(orders.Name) {
		names = lists["orderRefs"]
	}
	of := tokens(orders.Name)
	for _, w := range append(of, compress(orders.Name), strings.Join(of[max(0, len(of)-2):], "")) {
		if one := strings.TrimSuffix(w, "s"); slices.Contains(lists["orderWords"], w) || len(w) > 4 && !slices.Contains(lists["plainWords"], w) {
			names = append(names, one+"id", one+"no", "id"+one, one, one+"code", one+"sn")
		}
	}
	for _, c := range t.columns {
		switch {
		case !isKey(c):
		case c.refersTo(orders):
			all = append([]*column{c}, all...)
		case c.RefersTo == "" && slices.Contains(names, compress(c.key)):
			all = append(all, c)
		}
	}
	return all
}

// lineTables returns the tables that may hold the lines of orders, the most likely first.
func (f *Facts) lineTables(orders *Table) (all []*Table) {
	score := map[*Table]int{}
	stem := strings.TrimSuffix(compress(orders.Name), "s")
	for _, t := range f.Tables {
		of, begins := tokens(t.Name), strings.HasPrefix(compress(t.Name), stem)
		if t == orders || t.View || has(of, "notLines") || !has(of, "lineWords") && !begins || t.first("sku") == nil ||
			t.Pattern != "" && orders.Pattern == "" {
			continue
		}
		if order, _ := f.reference(t, orders); order == nil {
			continue
		}
		if score[t] = 10 - len(of); begins {
			score[t] += 5
		}
		if t.first("quantity") != nil {
			score[t] += 5
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b *Table) int { return score[b] - score[a] })
	return all
}

// reference returns the column of lines that holds the order, and the column of orders that it holds; nil: none does, or the rows contradict it.
func (f *Facts) reference(lines, orders *Table) (order, id *column) {
	for _, sure := range []bool{true, false} {
		for _, ref := range lines.refersTo(orders) {
			for _, id := range orders.ids() {
				if l := f.links[[2]*column{ref, id}]; comparable(ref, id) && (l.sure() || !sure && l.of == 0) {
					return ref, id
				}
			}
		}
	}
	return nil, nil
}

//go:embed rules.txt
var rulesText string

// lists are the lists of rules.txt, and meanings its expressions, in their order.
var lists, meanings = readRules(rulesText)

// saying is what a word that matches says of an order.
type saying struct {
	what  meaning
	match *regexp.Regexp
}

func readRules(text string) (of map[string][]string, all []saying) {
	of, name := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		if rule, is := strings.CutPrefix(line, "= "); is {
			what, expr, _ := strings.Cut(strings.TrimSpace(rule), " ")
			all = append(all, saying{meaning(what), regexp.MustCompile(expr)})
			continue
		}
		if before, after, is := strings.Cut(line, ":"); is && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "#") {
			name, line = before, after
		}
		if !strings.HasPrefix(line, "#") {
			of[name] = append(of[name], strings.Fields(line)...)
		}
	}
	return of, all
}

// meaning is what a value of a status says of an order.
type meaning string

const (
	unknown  meaning = ""
	fresh    meaning = "fresh" // it was just placed: perhaps unpaid
	unpaid   meaning = "unpaid"
	closed   meaning = "closed"   // cancelled or closed
	timedOut meaning = "timedOut" // closed because nobody paid
	paid     meaning = "paid"     // paid, or anything after that
)

// meaningOf returns what a word says of an order.
func meaningOf(word string) meaning {
	for _, m := range meanings {
		if m.match.MatchString(compress(word)) {
			if m.what == "unclear" {
				return unknown
			}
			return m.what
		}
	}
	return unknown
}

// rank returns how certainly a column holds what a role says: 1 is the most certain, and 0 none. strip are parts of the table's name, which
// columns may begin with.
func rank(role, column string, strip []string) int {
	name := compress(column)
	if i := slices.Index(lists[role], name); i >= 0 {
		return i + 1
	}
	for _, s := range append(strip, "fd", "fld", "f", "c", "o") { // f_status, order_create_time
		if rest, ok := strings.CutPrefix(name, s); ok {
			if i := slices.Index(lists[role], rest); i >= 0 {
				return 1000 + i
			}
		}
	}
	return 0
}

// compress writes a name in lower case and without separators: createTime, create_time and CREATE_TIME are one.
func compress(name string) string { return strings.Join(tokens(name), "") }

// tokens returns the words of a name, in lower case: t_orderItem has t, order and item.
func tokens(name string) []string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) || unicode.IsUpper(r) && lower {
			b.WriteByte(' ')
		}
		if lower = unicode.IsLower(r) || unicode.IsDigit(r); unicode.IsLetter(r) || unicode.IsDigit(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return strings.Fields(b.String())
}

func words(list string) []string { return strings.Fields(list) }

// has says that one of the words is in a list of rules.txt.
func has(of []string, list string) bool {
	return slices.ContainsFunc(of, func(w string) bool { return slices.Contains(lists[list], w) })
}
