package propose

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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
func isMark(c *column) bool    { return c.Type == "boolean" || c.Definition == "tinyint(1)" } // yes or no
func isWhole(c *column) bool {
	return isInteger(c) || c.Type == "decimal" && strings.Contains(c.Definition, ",0)")
}

// holding says for each role what a column must be to have it. Columns of any type have the other roles.
var holding = map[string]func(*column) bool{
	"status": isStatus, "pay": isStatus, "created": isTime, "due": isTime, "paidat": isTime, "closedat": isTime, "placed": isTime,
	"number": isKey, "sku": isKey, "available": isWhole, "reserved": isWhole, "label": isText,
	"deleted":  func(c *column) bool { return isStatus(c) || isTime(c) },
	"category": func(c *column) bool { return isKey(c) || c.Type == "enum" },
	"version":  func(c *column) bool { return isInteger(c) && c.Type != "tinyint" },
	"method":   func(c *column) bool { return isInteger(c) || isText(c) },
}

// comparable says that ids of two columns can be the same.
func comparable(a, b *column) bool {
	return isInteger(a) == isInteger(b) && isText(a) == isText(b)
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

// column returns a column by its name in lower case; nil: there is none.
func (t *Table) column(key string) *column {
	if i := slices.IndexFunc(t.columns, func(c *column) bool { return c.key == key }); i >= 0 {
		return t.columns[i]
	}
	return nil
}

// ranked returns the columns with a role, the most certain first.
func (t *Table) ranked(role string) []*column {
	strip := append(tokens(t.Name), compress(t.Name), "order")
	for _, s := range slices.Clone(strip) {
		strip = append(strip, strings.TrimSuffix(s, "s"))
	}
	of := map[*column]int{}
	for _, c := range t.columns {
		if fits := holding[role]; fits == nil || fits(c) {
			of[c] = rank(role, c.key, strip)
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
func (t *Table) first(role string) *column {
	for _, c := range t.ranked(role) {
		return c
	}
	return nil
}

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
func (t *Table) ids() (all []*column) {
	key := t.key()
	if key != nil {
		all = append(all, key)
	}
	for _, c := range t.ranked("number") {
		if c != key && len(c.uniques()) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// text writes a value as topics.yaml and statements have it; NULL is empty.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
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

// holds says that a value is there: neither NULL nor zero, an empty text, or the zero date.
func holds(v any) bool {
	s := text(v)
	return s != "" && s != "0" && s != "false" && !slices.Contains([]string{"0000-", "0001-", "1970-"}, s[:min(len(s), 5)])
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
	for v, got := range counts {
		if holds(v) {
			part += float64(got) / float64(n)
		}
	}
	return part, n
}

// Labels of values in a comment: "0:unpaid,1:paid", "0->unpaid; 1->paid", "UNPAID-…", or the other way round.
var (
	numbered = regexp.MustCompile(`(-?\d+)\s*[.\-=:：>→、)）＝—~_]*\s*([^\d,，;；、|\s()（）.。]+(?: [a-zA-Z]+)*)`)
	labelled = regexp.MustCompile(`([^\d,，;；、|/\s()（）.。:：=\-]+)\s*[:：=(（\-]+\s*(-?\d+)`)
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
		return nil // "cart:0 unpaid:1 paid:2 …" can be read in two ways
	}
	return after
}
