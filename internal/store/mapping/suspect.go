package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	// creationNames matches names of columns that hold when an order was created.
	creationNames = regexp.MustCompile(`^((gmt|date|time)_?)?` +
		`(add|added|create|created|creation|insert|inserted|order|ordered|place|placed)(_?(at|time|date|on))?$`)
	// paymentNames matches names of columns that a payment writes.
	paymentNames = regexp.MustCompile(`^(pay|paid|payment|refund)(_|(at|time|date|id|no|sn)$)`)
	// paidTimes matches those of them that hold when an order was paid.
	paidTimes = regexp.MustCompile(`^(pay|paid|payment)_?(at|time|date|on)$`)
)

// apartByName checks that the due time is in no column with the name of a creation or of a change, and the
// time of the close in none with the name of a creation. A column that has another problem is left out.
func (d *databaseChecker) apartByName(m *Mapping) {
	report := func(accept, path, column, is, why, fix string) {
		_, ok := d.table.column(column)
		if ok && !slices.ContainsFunc(d.problems, func(p Problem) bool { return strings.HasPrefix(p.Path, path) }) {
			d.reportAcceptable(accept, path+".column", d.where(column)+" has the name of "+is, why, fix)
		}
	}
	const due = "map the column of the due time; a generated column can add the delay to a creation time"
	switch name := strings.ToLower(m.Due.Column); {
	case m.ByRule: // it is the time of creation
	case creationNames.MatchString(name):
		report(DueLikeCreation, "due", name, "a creation time", "every order would be due when it is created", due)
	case lockNames.MatchString(name):
		report(DueLikeCreation, "due", name, "the time of a change", "every order would be due when it was last changed", due)
	}
	if len(m.ClosedAt) > 0 && creationNames.MatchString(strings.ToLower(m.ClosedAt[0].Column)) {
		report(ClosedLikeCreation, "closed_at", strings.ToLower(m.ClosedAt[0].Column), "a creation time", "a close would overwrite it",
			"map the column of the moment of the close, or remove closed_at")
	}
}

// PaymentColumns returns the keys of the mapping by which a close writes to a column with the name of a
// payment's column, each with the column.
func (m *Mapping) PaymentColumns() (all []string) {
	for _, p := range m.purposes("", "", "") {
		if strings.HasPrefix(p.effect, "a close") && p.path != "status.column" && paymentNames.MatchString(strings.ToLower(p.column)) {
			all = append(all, fmt.Sprintf("%s (orders.%s)", p.column, strings.TrimSuffix(p.path, ".column")))
		}
	}
	return all
}

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
