package mapping

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Schema describes the tables of a database, by name as the mapping writes them.
type Schema map[string]Table

// Table describes one table of a database. Column names are in lower case.
type Table struct {
	Schema, Name string // as the database reports them
	Home         bool   // the table is in the database of the connection
	View         bool
	Partitioned  bool // by the database itself
	Engine       string
	// Postgres says that the fixes of problems are written for PostgreSQL, and that the case of names counts.
	Postgres bool
	Columns  map[string]Column
	Indexes  []Index
	Triggers []string // the triggers that an UPDATE fires
	// TriggersUnread says that Triggers is empty because the user may not see triggers.
	TriggersUnread bool
}

// Column describes one column of a database.
type Column struct {
	Type       string // without the length, in lower case: varchar
	Definition string // with the length: varchar(64), enum('a','b')
	Digits     int    // digits of a fraction of a second
	Length     int64  // maximum number of characters; 0: not text
	Collation  string // empty: not text, or bytes
	Nullable   bool
	Default    bool   // an INSERT may leave it out
	DefaultNow bool   // an INSERT that leaves it out writes the present time
	OnUpdate   bool   // the database sets it to the present time with each UPDATE, or generates it from such a column
	Generated  bool   // the database computes it
	Expression string // of a generated column and of those that it names, in lower case, with names in backquotes; empty: not generated
	Kept       string // what a MODIFY of MySQL has to repeat behind NULL or NOT NULL: the default, the comment
	Numbered   bool   // AUTO_INCREMENT
	RefersTo   string // the table that a foreign key of the column refers to; empty: none
	Name       string // as the database writes it; empty: the database ignores its case
}

// Index describes one index of a database.
type Index struct {
	Name   string
	Unique bool
	Where  string // the condition on the rows of a partial index; empty: it has all rows
	// Columns are in lower case. A column of which only a prefix is indexed has the length after
	// its name, as in name(10). A column in descending order has " DESC" after its name.
	Columns []string
}

// IndexColumn is a column of an index, with what a query returns of the whole index.
type IndexColumn struct {
	Name, Col, Condition string
	Once                 bool // the index is unique
}

// Indexes returns the indexes of columns, which are sorted by index and position.
func Indexes(columns []IndexColumn) (all []Index) {
	for _, c := range columns {
		if n := len(all); n == 0 || all[n-1].Name != c.Name {
			all = append(all, Index{Name: c.Name, Unique: c.Once, Where: c.Condition})
		}
		last := &all[len(all)-1]
		last.Columns = append(last.Columns, c.Col)
	}
	return all
}

// fullName returns a table's name with its schema, or the name as it is written if the database
// has no such table.
func (s Schema) fullName(name string) string {
	if t, ok := s[name]; ok && t.Name != "" {
		return t.Schema + "." + t.Name
	}
	return name
}

func (t Table) column(name string) (Column, bool) {
	c, ok := t.Columns[strings.ToLower(name)]
	return c, ok
}

// zoneDependence returns what makes the value of a generated time column depend on the time zone of
// the session that computes it: a column of the other kind (DATETIME or TIMESTAMP), or a
// function. It returns an empty string if nothing does. An index holds the value of the
// session that wrote the row, and another session computes another value.
func (t Table) zoneDependence(c Column) string {
	if t.Postgres {
		return "" // it refuses such columns
	}
	other, function := []string{"datetime", "date"}, "str_to_date"
	if c.Type == "datetime" {
		other, function = []string{"timestamp"}, "from_unixtime"
	}
	for _, name := range slices.Sorted(maps.Keys(t.Columns)) {
		if of := t.Columns[name]; slices.Contains(other, of.Type) && strings.Contains(c.Expression, "`"+name+"`") {
			return "the " + strings.ToUpper(of.Type) + " column " + name
		}
	}
	if strings.Contains(c.Expression, function) {
		return strings.ToUpper(function)
	}
	return ""
}

// lockNames matches names of columns by which code often locks rows optimistically.
var lockNames = regexp.MustCompile(`^(version|rev|revision|opt_?lock|(row|lock)_?version|mtime|` +
	`(last_?|gmt_?)?(update|updated|modify|modified|change|changed|edited|write)(_?(at|time|date|on|ts))?)$`)

// UnchangedLocks returns the columns of a table of orders that look like an optimistic lock, such as
// update_time, and that do not change for certain with each close. A time in whole seconds that the database sets
// with each UPDATE, or that is closed_at, stays the same if the row was changed in the same second.
func (m *Mapping) UnchangedLocks(t Table) (columns []string) {
	const orders = "orders"
	for _, name := range slices.Sorted(maps.Keys(t.Columns)) {
		c := t.Columns[name]
		written := slices.ContainsFunc(m.purposes(orders, "", ""), func(p purpose) bool {
			sure := p.effect != "" && (c.Digits > 0 || !strings.HasPrefix(p.path, "closed_at"))
			return sure && p.table == orders && strings.EqualFold(p.column, name)
		})
		switch {
		case !lockNames.MatchString(name) || c.Generated || written || c.OnUpdate && c.Digits > 0:
		case c.OnUpdate:
			columns = append(columns, name+" (which the database sets with each UPDATE, in whole seconds)")
		default:
			columns = append(columns, name)
		}
	}
	return columns
}
