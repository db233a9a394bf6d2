package propose

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// column is a column of a table, with what its comment and its rows say.
type column struct {
	mapping.Column
	table  *Table
	key    string            // its name in lower case
	chosen bool              // the user names it as the time of creation
	labels map[string]string // of its values, by its comment and by tables of statuses
	rows   []any             // its values in the rows read
}

func is(c *column, types string) bool { return slices.Contains(words(types), c.Type) }

func isInteger(c *column) bool { return is(c, "tinyint smallint mediumint int bigint") }
func isText(c *column) bool    { return is(c, "varchar char enum tinytext text") }
func isTime(c *column) bool    { return is(c, "datetime timestamp timestamptz int bigint") } // numbers may be unix time
func isKey(c *column) bool     { return isInteger(c) || isText(c) && c.Type != "enum" || c.Type == "uuid" }
func isStatus(c *column) bool  { return isInteger(c) || isText(c) || c.Type == "boolean" }
func isBit(c *column) bool     { return c.Type == "bit" && !c.table.Postgres }
func isWord(c *column) bool    { return isText(c) || c.Type == "uuid" }

// isMark says that a column means yes or no.
func isMark(c *column) bool {
	return c.Type == "boolean" || c.Definition == "tinyint(1)" || isBit(c) && c.Definition == "bit(1)"
}

func isWhole(c *column) bool {
	return isInteger(c) || c.Type == "decimal" && strings.Contains(c.Definition, ",0)")
}
func isFlag(c *column) bool   { return isStatus(c) || c.Type == "bit" }
func isPieces(c *column) bool { return isWhole(c) && !isMark(c) }

// holding says for each role what a column must be to have it. Columns of any type have the other roles.
var holding = map[string]func(*column) bool{
	"status": isStatus, "pay": isFlag, "created": isTime, "due": isTime, "paidat": isTime, "closedat": isTime, "placed": isTime, "changed": isTime,
	"number": isKey, "sku": isKey, "available": isPieces, "reserved": isPieces, "label": isText,
	"deleted":  func(c *column) bool { return isFlag(c) || isTime(c) },
	"category": func(c *column) bool { return isKey(c) || c.Type == "enum" },
	"version":  func(c *column) bool { return isInteger(c) && c.Type != "tinyint" },
	"method":   func(c *column) bool { return isInteger(c) || isText(c) },
}

// comparable says that ids of two columns can be the same.
func comparable(a, b *column) bool {
	return isInteger(a) == isInteger(b) && isWord(a) == isWord(b)
}

// keyType returns the type of an id; "": it can be none.
func (c *column) keyType() mapping.KeyType {
	switch {
	case isInteger(c):
		return mapping.Integer
	case isText(c):
		return mapping.Text
	case c.Type == "uuid":
		return mapping.UUID
	}
	return ""
}

// asKey writes a column with an id for topics.yaml.
func (c *column) asKey() string {
	index := ""
	if names := c.uniques(); len(names) > 0 && !c.table.Postgres && !slices.Contains(names, "PRIMARY") {
		index = names[len(names)-1]
	}
	return flow("column", quoted(c.Name), "type", string(c.keyType()), "index", quoted(index))
}

// refersTo says that a foreign key refers to the table.
func (c *column) refersTo(t *Table) bool {
	refers := strings.Trim(c.RefersTo, "`\"")
	return strings.EqualFold(strings.Trim(refers[strings.LastIndex(refers, ".")+1:], "`\""), t.Name)
}

// ranked returns the columns with a role, the most certain first.
func (t *Table) ranked(role string) []*column {
	strip := append(tokens(t.Name), compress(t.Name), "order", "fd", "fld", "f", "c", "o") // what names may begin with: f_status, order_create_time
	for _, s := range slices.Clone(strip) {
		strip = append(strip, strings.TrimSuffix(s, "s"))
	}
	of := map[*column]int{}
	for _, c := range t.columns {
		name, fits := compress(c.key), holding[role]
		for i, word := range lists[role] {
			before, is := strings.CutSuffix(name, word)
			switch {
			case !is || fits != nil && !fits(c):
			case before == "":
				of[c] = i + 1
			case of[c] == 0 && slices.Contains(strip, before):
				of[c] = 1000 + i
			}
		}
		if role == "created" && c.chosen && isTime(c) {
			of[c] = -1
		}
	}
	list := slices.DeleteFunc(slices.Clone(t.columns), func(c *column) bool { return of[c] == 0 })
	slices.SortStableFunc(list, func(a, b *column) int { return of[a] - of[b] })
	return list
}

// first returns the most certain column with a role; nil: none.
func (t *Table) first(role string) *column { return append(t.ranked(role), nil)[0] }

// uniques returns the indexes that make one column unique, by their names.
func (c *column) uniques() (names []string) {
	for _, i := range c.table.Indexes {
		if i.Unique && i.Where == "" && len(i.Columns) == 1 && i.Columns[0] == c.key {
			names = append(names, i.Name)
		}
	}
	return names
}

// key returns the column of the primary key; nil if it has several, or none.
func (t *Table) key() (found *column) {
	for _, c := range t.columns {
		for _, name := range c.uniques() {
			if name == "PRIMARY" || strings.HasSuffix(name, "_pkey") {
				return c
			}
			if t.Postgres && (c.key == "id" || c.Numbered) {
				found = c
			}
		}
	}
	return found
}

// numbered returns the key if it is a number; nil: it is none.
func (t *Table) numbered() *column {
	if key := t.key(); key != nil && isInteger(key) {
		return key
	}
	return nil
}

// ids returns the columns that may be the id that records use: the key, and unique numbers.
func (t *Table) ids() []*column {
	key := t.key()
	return slices.DeleteFunc(append([]*column{key}, t.ranked("number")...), func(c *column) bool { return c == nil || len(c.uniques()) == 0 })
}

// text writes a value as topics.yaml and statements have it; NULL is empty.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if v == "\x00" || v == "\x01" { // a BIT
			return fmt.Sprint(v[0])
		}
		return v
	case time.Time:
		return v.Format(time.DateTime)
	}
	return fmt.Sprint(v)
}

func number(v any) float64 {
	n, _ := strconv.ParseFloat(text(v), 64)
	return n
}

// holds says that a value is there: neither NULL nor zero, as 0.00 is, an empty text, or the zero date.
func holds(v any) bool {
	s := text(v)
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return n != 0
	}
	return s != "" && s != "false" && !slices.Contains([]string{"0000-", "0001-", "1970-"}, s[:min(len(s), 5)])
}

// same says that two texts are one value: 0.00 is 0.
func same(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return a == b || errX == nil && errY == nil && x == y
}

// label returns what a comment or a table of statuses calls a value. The case of its letters does not count.
func (c *column) label(value string) string {
	if found := c.labels[value]; found != "" {
		return found
	}
	for v, found := range c.labels {
		if strings.EqualFold(v, value) {
			return found
		}
	}
	return ""
}

func anyRow(int) bool { return true }
func noRow(int) bool  { return false }

// count counts rows by the values of a column. usual is the value that nearly all have; "": none.
func (c *column) count(of func(row int) bool) (counts map[string]int, n int, usual string) {
	counts = map[string]int{}
	for row, v := range c.rows {
		if of(row) {
			n++
			counts[text(v)]++
		}
	}
	for v, got := range counts {
		if got*20 >= n*19 {
			usual = v
		}
	}
	return counts, n, usual
}

// share returns in how many of the rows a column holds something, between 0 and 1, and how many rows there are.
func (c *column) share(of func(row int) bool) (part float64, n int) {
	counts, n, _ := c.count(of)
	held := 0
	for v, got := range counts {
		if holds(v) {
			held += got
		}
	}
	return float64(held) / float64(max(n, 1)), n
}

// Labels of values in a comment: "0:unpaid,1:paid", "0->unpaid; 1->paid", "UNPAID-…", or the other way round.
var (
	numbered = regexp.MustCompile(`(-?\d+)\s*[.\-=:：>→、)）(（\[【＝—~_]*\s*([^\d,，;；、|\s()（）\[\]【】.。]+(?: [a-zA-Z]+)*)`)
	labelled = regexp.MustCompile(`([^\d,，;；、|/\s()（）\[\]【】.。:：=\-]+)\s*[:：=(（\[【\-]+\s*(-?\d+)`)
	coded    = regexp.MustCompile(`([A-Za-z_]+)\s*[:：=\->→(（]+\s*([^A-Za-z,，;；、|/\s()（）]+)`)
)

// labels returns the labels of values that a comment gives.
func labels(comment string, numbers bool) map[string]string {
	read := func(expr *regexp.Regexp, value, label int) map[string]string {
		all := map[string]string{}
		for _, m := range expr.FindAllStringSubmatch(comment, -1) {
			if all[m[value]] == "" {
				all[m[value]] = strings.TrimRight(m[label], "：:=-> /")
			}
		}
		return all
	}
	if !numbers {
		return read(coded, 1, 2)
	}
	before, after := read(labelled, 2, 1), read(numbered, 1, 2)
	switch first, last := labelled.FindStringIndex(comment), strings.TrimRight(comment, ")）.。]】 "); {
	case len(before) > len(after), first != nil && last != "" && last[len(last)-1] >= '0' && last[len(last)-1] <= '9':
		return before
	case first != nil && len(before) > 1 && len(before) >= len(after)-1 && !strings.ContainsAny(comment[:first[1]-1], "0123456789"):
		return map[string]string{} // "cart:0 unpaid:1 paid:2 …" can be read in two ways
	}
	return after
}

// candidate is a table that may be that of the orders.
type candidate struct {
	*Table
	score    int
	evidence string // why it may be that of the orders, and how many rows it has
	against  string // why it is certainly no table of orders; "": nothing is
	byName   bool   // against is a reason of its name alone
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
	c, reasons := candidate{Table: t}, []string{}
	add := func(n int, reason string) {
		if c.score += n; reason != "" {
			reasons = append(reasons, reason)
		}
	}
	base := months.ReplaceAllString(t.Name, "$1")
	of := tokens(base)
	rest := slices.DeleteFunc(slices.Clone(of), func(w string) bool {
		return slices.Contains(lists["orderWords"], w) || slices.Contains(lists["plainWords"], w)
	})
	switch named := isOrders(base); {
	case t.View:
		c.against = "it is a view: a close needs the table below it"
	case t.unread != "":
		c.against = t.unread
	case f.parts[strings.TrimRight(t.Name, "0123456789")] > 1:
		c.against = "the orders are spread over several tables by a number. Only tables by month are read as one (docs/mapping.md, Shards)"
	case f.parts[t.Name]+f.parts[t.Name+"_"] > 1:
		c.against, c.byName = "tables with its name and a number may have the newer orders", true
	case t.parent:
		c.against, c.byName = "other tables inherit it, and not its key: two orders may have one id", true
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
	status, created, sure := cmp.Or(t.first("status"), t.first("pay")), t.first("created"), c.against != "" && !c.byName
	for _, found := range []*column{status, created} {
		if found != nil {
			add(1, "the column "+found.Name)
		}
	}
	switch {
	case sure:
	case status == nil:
		c.against, c.byName = "it has no status: a column of numbers or text", false
	case created == nil:
		c.against, c.byName = "it has no time of creation: a DATETIME, a TIMESTAMP or unix time", false
		for _, column := range t.columns {
			if is(column, "datetime timestamp timestamptz") {
				c.against += "; name one: --created " + column.Name
			}
		}
	}
	for _, role := range words("status money buyer number paidat") {
		if t.first(role) != nil {
			add(1, "")
		}
	}
	if lines := f.lineTables(t); len(lines) > 0 {
		add(3, "lines in "+lines[0].Name)
	}
	slices.Sort(reasons)
	c.evidence = fmt.Sprintf("%s; %d rows", strings.Join(reasons, ", "), c.rows)
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
		if order, id := f.reference(t, orders); order == nil || !comparable(order, id) {
			continue
		}
		score[t] = 10 - len(of)
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
				if l := f.links[[2]*column{ref, id}]; l.sure() || !sure && l.of == 0 && comparable(ref, id) {
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
