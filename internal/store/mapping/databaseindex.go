package mapping

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// needUniqueIndex checks for the index of a key, through which rows are found and locked.
// more are further columns of the key, without empty names.
func (d *databaseChecker) needUniqueIndex(path string, k Key, more ...string) {
	columns := slices.DeleteFunc(append([]string{k.Column}, more...), func(c string) bool { return c == "" })
	list := strings.Join(columns, "`, `")
	do := "add one: ALTER TABLE " + Quote(d.name) + " ADD UNIQUE KEY " + Quote(k.Column) + " (`" + list + "`), and name it here"
	if d.table.Postgres {
		do = "add one: CREATE UNIQUE INDEX CONCURRENTLY ON " + Quote(d.name) + " (`" + list + "`)"
	}
	if d.table.Partitioned {
		do = "a partitioned table takes no unique index without the columns of its partitions: close through a service, closer.http.url"
	}
	repeats := ""
	for _, i := range d.table.Indexes {
		switch {
		case !i.identifies(columns...) && i.Unique && i.Where == "" && slices.Contains(i.Columns, strings.ToLower(k.Column)):
			repeats = fmt.Sprintf("; if %s repeats, since the index %s is on (%s), no such index is possible: "+
				"map a generated column of all of them if each row is an order of its own, or close through a service, closer.http.url",
				k.Column, i.Name, strings.Join(i.Columns, ", "))
		case !i.identifies(columns...):
		case strings.EqualFold(i.Name, k.Index), d.table.Postgres && k.Index == primary: // no statement names it
			return
		default:
			do = "name the one that is there, index: " + i.Name
		}
	}
	if strings.HasPrefix(do, "add one") {
		do += repeats
	}
	d.reportHarm(path, fmt.Sprintf("table %s has no unique index %s on %s alone", d.name, k.Index, strings.Join(columns, " and ")),
		"a close finds and locks rows through it; without it each close reads and locks the whole table", do)
}

// needDueIndex checks for an index on status, due and id.
func (d *databaseChecker) needDueIndex(m *Mapping) {
	add := m.AddDueIndex(d.name, d.table)
	if add == "" {
		return
	}
	named := strings.TrimLeft(m.DueIndex+" ", " ")
	what := fmt.Sprintf("table %s has no index %son %s, %s and %s", d.name, named, m.Status.Column, m.Due.Column, m.ID.Column)
	d.reportHarm("due.index", what, "each page of a sweep would read the whole table", add)
}

// AddDueIndex returns the statement that adds an index on status, due and id to a table with the name; empty: the table has one. InnoDB
// appends the id by itself if it is the primary key. By rule the index that it adds has the category as well: a page then reads past
// orders with longer delays without their rows.
func (m *Mapping) AddDueIndex(name string, t Table) string {
	status, due, id := strings.ToLower(m.Status.Column), strings.ToLower(m.Due.Column), strings.ToLower(m.ID.Column)
	columns := []string{m.Status.Column, m.Due.Column, m.ID.Column}
	short := []string{"varchar", "char", "enum", "tinyint", "smallint", "int", "bigint"}
	if c := t.Columns[strings.ToLower(m.Category)]; m.ByRule && slices.Contains(short, c.Type) && c.Length <= 191 {
		columns = append(columns, m.Category) // of at most 764 bytes: the row format COMPACT indexes 767 of a column
	}
	add := t.createIndex("orderclose_overdue", name, columns...)
	if t.Postgres { // rows that are no longer open leave a partial index
		add = t.createIndex("orderclose_overdue", name, m.Due.Column, m.ID.Column) +
			" WHERE " + m.Status.unpaid()
	}
	for _, i := range t.Indexes {
		named := i.Where == "" && (m.DueIndex == "" || strings.EqualFold(i.Name, m.DueIndex))
		whole := slices.Equal(i.Columns[:min(3, len(i.Columns))], []string{status, due, id})
		if named && (whole || m.ID.Index == primary && slices.Equal(i.Columns, []string{status, due})) ||
			slices.Equal(i.Columns, []string{due, id}) && i.hasAll(m) {
			return ""
		}
	}
	return add
}

// unpaid writes the condition that an order is unpaid.
func (s Status) unpaid() string {
	var all []string
	for _, v := range s.From {
		all = append(all, "'"+strings.ReplaceAll(v.Text, "'", "''")+"'")
	}
	if len(all) == 1 {
		return Quote(s.Column) + " = " + all[0]
	}
	return Quote(s.Column) + " IN (" + strings.Join(all, ", ") + ")"
}

// sqlMarks matches what PostgreSQL writes around the names and values of a condition: casts, brackets, quotes and spaces.
var sqlMarks = regexp.MustCompile(`::(("[^"]*"|[a-z0-9_ ]+)\.?)+(\(\d+\))?(\[\])?|[()'" ]`)

// hasAll reports whether a partial index has all rows that may be closed: its condition says that the status is that of open orders or one of a list with
// it, and else only what orders.where says.
func (i Index) hasAll(m *Mapping) (open bool) {
	plain := func(text string) string { return sqlMarks.ReplaceAllString(text, "") }
	lists := func(list string) bool {
		values := strings.Split(list, ",")
		return !slices.ContainsFunc(m.Status.From, func(v Value) bool { return !slices.Contains(values, plain(v.Text)) })
	}
	for part := range strings.SplitSeq(plain(strings.ReplaceAll(i.Where, " AND ", "&")), "&") {
		list, of := strings.CutPrefix(part, plain(m.Status.Column)+"=")
		list = strings.TrimRight(strings.TrimPrefix(strings.TrimPrefix(list, "ANYARRAY["), "ANY{"), "]}")
		switch {
		case of && !strings.ContainsAny(list, "[]{}") && lists(list):
			open = true
		case !slices.ContainsFunc(m.Where, func(w Condition) bool {
			v, single := w.one()
			return single && (part == plain(w.Column)+"="+plain(v.Text) || v == Value{} && part == plain(w.Column)+"ISNULL")
		}):
			return false
		}
	}
	return open
}

// createIndex returns the statement that adds an index to the table with a name. The shop can write meanwhile, but not to a partitioned
// table of PostgreSQL.
func (t Table) createIndex(index, name string, columns ...string) string {
	var quoted []string
	for _, c := range columns {
		quoted = append(quoted, Quote(c))
	}
	on := fmt.Sprintf("%s ON %s (%s)", Quote(index), Quote(name), strings.Join(quoted, ", "))
	switch {
	case !t.Postgres:
		return "CREATE INDEX " + on + " ALGORITHM=INPLACE LOCK=NONE"
	case t.Partitioned:
		return "CREATE INDEX " + on
	}
	return "CREATE INDEX CONCURRENTLY " + on
}

// needIndexOn checks for an index that begins with the column.
func (d *databaseChecker) needIndexOn(path, column, name string) {
	for _, i := range d.table.Indexes {
		if name, _, _ := strings.Cut(i.Columns[0], "("); i.Where == "" && name == strings.ToLower(column) {
			return
		}
	}
	d.reportHarm(path, fmt.Sprintf("table %s has no index that begins with %s", d.name, column), "each close would read the whole table",
		d.table.createIndex(name, d.name, column))
}

// indexLedBy returns the index that begins with the column; empty: there is none.
func (d *databaseChecker) indexLedBy(column string) string {
	for _, i := range d.table.Indexes {
		if i.Columns[0] == strings.ToLower(column) {
			return i.Name
		}
	}
	return ""
}

// identifies reports whether the column alone has a unique index.
func (d *databaseChecker) identifies(column string) bool {
	return slices.ContainsFunc(d.table.Indexes, func(i Index) bool { return i.identifies(column) })
}

// identifies reports whether the index is unique and has the columns, in any order, and no other.
func (i Index) identifies(columns ...string) bool {
	return i.Unique && i.Where == "" && len(i.Columns) == len(columns) && !slices.ContainsFunc(columns,
		func(c string) bool { return !slices.Contains(i.Columns, strings.ToLower(c)) })
}

// uniqueWithout returns the name of a unique index that includes the column and not the key;
// empty: there is none. A unique index that includes the key cannot refuse the write of a close,
// since the key alone is unique.
func (d *databaseChecker) uniqueWithout(column, key string) string {
	for _, i := range d.table.Indexes {
		if i.Unique && slices.Contains(i.Columns, strings.ToLower(column)) && !slices.Contains(i.Columns, strings.ToLower(key)) {
			return i.Name
		}
	}
	return ""
}
