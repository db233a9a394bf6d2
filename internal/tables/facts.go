package tables

import (
	"maps"
	"slices"
	"strings"
)

// Facts is what a database has: its tables, by name as the mapping writes them.
type Facts map[string]Table

// Table is a table as a database describes it. Names of columns are in lower
// case, as the database does not tell them apart.
type Table struct {
	Schema, Name string // of the table, as the database has them
	Home         bool   // the table is in the database of the connection
	View         bool
	Engine       string
	Columns      map[string]Column
	Indexes      []Index
	Triggers     []string // those that an UPDATE fires
}

// Column is a column as a database describes it.
type Column struct {
	Type       string // without its length, in lower case: varchar
	Definition string // with it: varchar(64), enum('a','b')
	Digits     int    // of a second
	Length     int64  // the most characters that it holds; 0: it holds no text
	Collation  string // empty: it holds no text, or bytes
	Nullable   bool
	Default    bool   // an INSERT may leave it out
	DefaultNow bool   // an INSERT that leaves it out writes the present moment
	OnUpdate   bool   // the database sets it to the present moment with each UPDATE
	Generated  bool   // the database computes it
	Expression string // from what, in lower case, names in backquotes; empty: it is not generated
	Numbered   bool   // AUTO_INCREMENT
	RefersTo   string // the table that a foreign key of it refers to; empty: none
}

// Index is an index as a database describes it.
type Index struct {
	Name   string
	Unique bool
	// Columns are in lower case. One that is indexed in part, or descending, has that
	// after its name.
	Columns []string
}

// full is a table's name with its schema, or as it is written if the database has no
// such table.
func (f Facts) full(name string) string {
	if t, ok := f[name]; ok && t.Name != "" {
		return t.Schema + "." + t.Name
	}
	return name
}

func (t Table) column(name string) (Column, bool) {
	c, ok := t.Columns[strings.ToLower(name)]
	return c, ok
}

// zoned is what makes the value of a generated moment depend on the time zone of the
// session that computes it: a column of the other kind, of DATETIME and TIMESTAMP, or a
// function; empty: nothing does. An index has the value of the session that wrote the row,
// and another session reads another one.
func (t Table) zoned(c Column) string {
	other := "datetime"
	if c.Type == "datetime" {
		other = "timestamp"
	}
	for _, name := range slices.Sorted(maps.Keys(t.Columns)) {
		if t.Columns[name].Type == other && strings.Contains(c.Expression, "`"+name+"`") {
			return "the " + strings.ToUpper(other) + " column " + name
		}
	}
	if c.Type == "datetime" && strings.Contains(c.Expression, "from_unixtime") {
		return "FROM_UNIXTIME"
	}
	return ""
}
