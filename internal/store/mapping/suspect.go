package mapping

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// paidTimes matches names of columns that hold when an order was paid.
var paidTimes = regexp.MustCompile(`^(pay|paid|payment)_?(at|time|date|on)$`)

// PaidTime returns a column that by its name holds when an order was paid, and the condition that it holds a
// time; empty: there is none. A shop may write zero in place of NULL.
func (t Table) PaidTime() (column, holds string) {
	for _, name := range slices.Sorted(maps.Keys(t.Columns)) {
		c := t.Columns[name]
		over := map[string]string{"datetime": "'1970-01-02'", "timestamp": "'1970-01-02'", "timestamptz": "'1970-01-02'", "int": "0", "bigint": "0"}[c.Type]
		if over != "" && paidTimes.MatchString(name) && !c.OnUpdate {
			column = cmp.Or(c.Name, name)
			return column, Quote(column) + " > " + over
		}
	}
	return "", ""
}

// CheckOnClose returns the problems of a statement of OnClose that the definition of its table shows. path is its
// key.
func (m *Mapping) CheckOnClose(path, statement string, schema Schema) []Problem {
	name, column, _ := OnCloseTable(statement)
	t, ok := schema[name]
	if !ok {
		return nil // the database reports a table that does not exist
	}
	d := databaseChecker{name: name, table: t}
	d.transactional(path, "the statement writes to table "+name+" of the engine",
		"its changes would stay when a close fails, and be made again by the next attempt")
	if t.View {
		d.reportHarm(path, "the statement writes to the view "+name, "a mapped table may be behind it, or one without transactions", "write to the table behind it")
	}
	_, orders := Split(m.Orders)
	what := ""
	switch c, ok := t.column(column); {
	case !ok:
	case c.Numbered:
		what = "numbers the rows of its table"
	case c.RefersTo != "" && !strings.EqualFold(strings.Trim(c.RefersTo[strings.LastIndex(c.RefersTo, ".")+1:], `"`), orders) && !IsPattern(m.Orders):
		what = "refers to table " + c.RefersTo
	case strings.EqualFold(column, "id"):
		what = "has the name of the table's own id"
	}
	if what != "" {
		d.reportAcceptable(OnCloseOtherID, path, d.where(column)+", which the statement compares with the ids of orders, "+what,
			"each close would change the rows of other orders", "compare the column that holds the order's id")
	}
	return m.Unaccepted(d.problems)
}
