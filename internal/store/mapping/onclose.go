package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// IDs is the placeholder of an OnClose statement for the ids of the closed orders.
const IDs = "{ids}"

// nameSQL matches a name in SQL, with or without the quotes of MySQL or PostgreSQL.
const nameSQL = "(?:[\\pL\\pN_$]+|[`\"][\\pL\\pN_$ -]+[`\"])"

var (
	onCloseShape = regexp.MustCompile(strings.ReplaceAll(`(?i)^\s*(?:UPDATE\s+(T)\s+SET|DELETE\s+FROM\s+(T)\s+WHERE|INSERT\s+INTO\s+(T))[\s(]`,
		"T", nameSQL+`(?:\.`+nameSQL+`)?`))
	onCloseIDs = regexp.MustCompile(`(?i)(` + nameSQL + `)?\s*\bIN\s*\(\s*\{ids\}\s*\)`)
	quotedSQL  = regexp.MustCompile("(?s)'(?:[^'\\\\]|\\\\.|'')*'|\"(?:[^\"\\\\]|\\\\.|\"\")*\"|`[^`]*`")
	quotedName = regexp.MustCompile("^[`\"][^'`\"{}();]+[`\"]$")
	unquoted   = regexp.MustCompile(`[;#']|--|/\*`) // what may stand in quotes only
	balanced   = regexp.MustCompile(`\([^()]*\)`)
	selectSQL  = regexp.MustCompile(`(?i)\bSELECT\b`)
	whereSQL   = regexp.MustCompile(`(?i)\bWHERE\b`)
	quoteMarks = strings.NewReplacer("`", "", `"`, "")
)

// OnCloseTable returns the table to which a statement of OnClose writes, and the column of that table that the
// statement compares with the ids; empty: it compares a column of a SELECT, or an expression. The error says what
// the text of the statement lacks. Each close finds out by itself whether the statement changes rows of other orders.
func OnCloseTable(statement string) (table, column string, err error) {
	text := quotedSQL.ReplaceAllStringFunc(statement, func(quoted string) string {
		if quotedName.MatchString(quoted) {
			return quoted
		}
		return " "
	})
	shape, ids := onCloseShape.FindStringSubmatch(text), onCloseIDs.FindStringSubmatchIndex(text)
	switch {
	case shape == nil:
		return "", "", errors.New("the statement does not begin with UPDATE t SET, DELETE FROM t WHERE or INSERT INTO t")
	case unquoted.MatchString(text):
		return "", "", errors.New("the statement has a comment, a ; outside of quotes, or a quote that is not closed")
	case ids == nil || strings.Count(statement, IDs) != 1:
		return "", "", errors.New("the statement must contain IN (" + IDs + ") once, outside of quotes")
	}
	before := text[:ids[0]]
	for balanced.MatchString(before) {
		before = balanced.ReplaceAllString(before, " ")
	}
	outer, inner, _ := strings.Cut(before, "(")
	switch {
	case shape[1] != "" && !whereSQL.MatchString(outer):
		return "", "", errors.New("the UPDATE has no WHERE before " + IDs)
	case shape[3] == "" && ids[2] >= 0 && !selectSQL.MatchString(inner):
		column = quoteMarks.Replace(text[ids[2]:ids[3]])
	}
	return quoteMarks.Replace(cmp.Or(shape[1:]...)), column, nil
}

// onClose reports the mistakes in the statements of OnClose that their text shows.
func (c *checker) onClose(m *Mapping) {
	for i, statement := range m.OnClose {
		path := fmt.Sprintf("on_close[%d]", i)
		table, _, err := OnCloseTable(statement)
		switch {
		case err != nil:
			c.report(path, err.Error(), "write UPDATE t SET … WHERE order_id IN ("+IDs+"), DELETE FROM t WHERE order_id IN ("+IDs+") or INSERT INTO t …, "+
				"with one table t of yours and without an alias; "+IDs+" stands for the ids of the closed orders")
		case m.uses(table):
			c.reportHarm(path, "the statement writes to the table "+table, "a close writes to this table by itself, and the two could undo each other",
				"write to another table; of an order's own columns, list those that a close sets in set")
		}
	}
}

// uses reports whether a table is mapped, or is one of orderclose's own.
func (m *Mapping) uses(written string) bool {
	database, name := Split(written)
	if isOwnTable(name) {
		return true
	}
	items, _ := m.tables()
	mapped := []string{m.Orders, items}
	for _, s := range m.Stock {
		mapped = append(mapped, s.Table)
	}
	return slices.ContainsFunc(mapped, func(mapped string) bool {
		if p, err := ParsePattern(mapped); err == nil {
			_, ok := p.Month(name)
			return ok
		}
		in, table := Split(mapped)
		return strings.EqualFold(table, name) && (in == "" || database == "" || strings.EqualFold(in, database))
	})
}
