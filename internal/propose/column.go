package propose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

func isInteger(c mapping.Column) bool {
	return slices.Contains([]string{"tinyint", "smallint", "mediumint", "int", "bigint"}, c.Type)
}

func isText(c mapping.Column) bool {
	return slices.Contains([]string{"varchar", "char", "enum", "tinytext", "text"}, c.Type)
}

// isTime says that a column may hold a point in time; numbers may be unix time.
func isTime(c mapping.Column) bool {
	return slices.Contains([]string{"datetime", "timestamp", "timestamptz", "int", "bigint"}, c.Type)
}

// isKey says that a column may hold an id.
func isKey(c mapping.Column) bool {
	return isInteger(c) || isText(c) && c.Type != "enum" || c.Type == "uuid"
}

// isStatus says that a column may hold a status or a mark.
func isStatus(c mapping.Column) bool {
	return isInteger(c) || isText(c) || c.Type == "boolean"
}

// isMark says that a column is a yes or no.
func isMark(c mapping.Column) bool { return c.Type == "boolean" || c.Definition == "tinyint(1)" }

func isWhole(c mapping.Column) bool {
	return isInteger(c) || c.Type == "decimal" && strings.Contains(c.Definition, ",0)")
}

func isAny(mapping.Column) bool { return true }

// comparable says that ids of two columns can be the same.
func comparable(a, b mapping.Column) bool {
	return a.Type != "" && b.Type != "" && isInteger(a) == isInteger(b) && isText(a) == isText(b)
}

// real returns the name of a column as statements have it.
func (t *Table) real(column string) string { return cmp.Or(t.Columns[column].Name, column) }

// is says that a reference of a foreign key is to the table.
func (t *Table) is(refers string) bool {
	refers = strings.Trim(refers, "`\"")
	return strings.EqualFold(strings.Trim(refers[strings.LastIndex(refers, ".")+1:], "`\""), t.Name)
}

// ranked returns the columns with a role, the most certain first.
func (t *Table) ranked(role string, is func(mapping.Column) bool) []string {
	strip := append(tokens(t.Name), compress(t.Name), "order")
	for _, s := range slices.Clone(strip) {
		strip = append(strip, strings.TrimSuffix(s, "s"))
	}
	of := map[string]int{}
	for _, c := range t.columns {
		if n := rank(role, c, strip); n > 0 && is(t.Columns[c]) {
			of[c] = n
		}
	}
	list := slices.DeleteFunc(slices.Clone(t.columns), func(c string) bool { return of[c] == 0 })
	slices.SortStableFunc(list, func(a, b string) int { return of[a] - of[b] })
	return list
}

// first returns the most certain column with a role; "": none.
func (t *Table) first(role string, is func(mapping.Column) bool) string {
	for _, c := range t.ranked(role, is) {
		return c
	}
	return ""
}

// key returns the column of the primary key; "" if it has several, or none.
func (t *Table) key() string {
	found := ""
	for _, i := range t.Indexes {
		if !i.Unique || i.Where != "" || len(i.Columns) != 1 || strings.Contains(i.Columns[0], "(") {
			continue
		}
		if i.Name == "PRIMARY" || strings.HasSuffix(i.Name, "_pkey") {
			return i.Columns[0]
		}
		if t.Postgres && (i.Columns[0] == "id" || t.Columns[i.Columns[0]].Numbered) {
			found = i.Columns[0]
		}
	}
	return found
}

// unique returns the name of the index that makes a column unique, as topics.yaml has it; false: none does.
func (t *Table) unique(column string) (index string, ok bool) {
	for _, i := range t.Indexes {
		if i.Unique && i.Where == "" && len(i.Columns) == 1 && i.Columns[0] == column {
			if index = i.Name; i.Name == "PRIMARY" || t.Postgres {
				return "", true
			}
			ok = true
		}
	}
	return index, ok
}

// text writes a value as topics.yaml and statements have it; NULL is empty.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case time.Time:
		return v.Format("2006-01-02 15:04:05")
	}
	return fmt.Sprint(v)
}

func number(v any) float64 {
	n, _ := strconv.ParseFloat(text(v), 64)
	return n
}

func yes(v any) bool { return text(v) == "1" || text(v) == "true" || text(v) == "\x01" }

// holds says that a value is there: neither NULL nor zero, an empty text, or the zero date.
func holds(v any) bool {
	if t, is := v.(time.Time); is {
		return t.Year() > 1970
	}
	s := text(v)
	return s != "" && s != "0" && !strings.HasPrefix(s, "0000-00-00") && s != "false"
}

// share returns how many of the values hold something, between 0 and 1.
func share(values []any, of func(i int) bool) (part float64, n int) {
	got := 0
	for i, v := range values {
		if of == nil || of(i) {
			n++
			if holds(v) {
				got++
			}
		}
	}
	return float64(got) / float64(max(n, 1)), n
}

// Labels of values in a comment: "0:unpaid,1:paid", "0->unpaid; 1->paid", "UNPAID-…", or the other way round.
var (
	numbered = regexp.MustCompile(`(-?\d+)\s*[.\-=:：>→、)）＝—~_]*\s*([^\d,，;；、|\s()（）.。]+(?: [a-zA-Z]+)*)`)
	labelled = regexp.MustCompile(`([^\d,，;；、|/\s()（）.。:：=\-]+)\s*[:：=(（\-]+\s*(-?\d+)`)
	coded    = regexp.MustCompile(`([A-Za-z_]+)\s*[:：=\->→(（]+\s*([^A-Za-z,，;；、|/\s()（）]+)`)
)

// labels returns the labels of values that a comment gives.
func labels(comment string, numbers bool) map[string]string {
	all := map[string]string{}
	comment = strings.TrimRight(strings.TrimSpace(comment), ")）.。]】")
	switch {
	case !numbers:
		for _, m := range coded.FindAllStringSubmatch(comment, -1) {
			all[m[1]] = m[2]
		}
	case comment != "" && comment[len(comment)-1] >= '0' && comment[len(comment)-1] <= '9':
		for _, m := range labelled.FindAllStringSubmatch(comment, -1) {
			all[m[2]] = m[1]
		}
	default:
		for _, m := range numbered.FindAllStringSubmatch(comment, -1) {
			if _, known := all[m[1]]; !known {
				all[m[1]] = strings.TrimRight(m[2], "：:=-> ")
			}
		}
	}
	return all
}

// enumValues returns the values of an enum.
func enumValues(c mapping.Column) (all []string) {
	if c.Type != "enum" {
		return nil
	}
	for _, m := range regexp.MustCompile(`'((?:[^']|'')*)'`).FindAllStringSubmatch(c.Definition, -1) {
		all = append(all, strings.ReplaceAll(m[1], "''", "'"))
	}
	return all
}
