package tables

import (
	"fmt"
	"slices"
	"strings"
)

// Facts is what a database has: its tables, by name as the mapping writes them.
type Facts map[string]Table

// Table is a table as a database describes it. Names of columns are in lower
// case, as the database does not tell them apart.
type Table struct {
	Engine  string
	Columns map[string]Column
	Indexes []Index
}

// Column is a column as a database describes it.
type Column struct {
	Type       string // without its length, in lower case: varchar
	Definition string // with it: varchar(64), enum('a','b')
	Digits     int    // of a second
}

// Index is an index as a database describes it.
type Index struct {
	Name    string
	Unique  bool
	Columns []string // in lower case
}

var (
	integerTypes = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}
	textTypes    = []string{"varchar", "char", "enum", "tinytext", "text", "binary", "varbinary"}
	binaryTypes  = []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit"}
)

// Judge is what keeps a mapping from working on these tables. The names are those
// of tables that there are, for a mapping with shards those of the months.
func (m *Mapping) Judge(facts Facts, orders, items []string) []Problem {
	var j judge
	for _, name := range orders {
		j.orders(m, name, facts)
	}
	if m.Items != nil {
		for _, name := range items {
			if j.enter("items.table", name, facts) {
				j.key("items.order", m.Items.Order, m.ID.Type)
				if c, ok := j.column("items.sku", m.Items.SKU); ok {
					j.readable("items.sku", m.Items.SKU, c)
				}
				j.quantity("items.quantity", m.Items.Quantity)
				j.led("items.order", m.Items.Order, "items_by_order")
			}
		}
	}
	if s := m.Stock; s != nil && j.enter("stock.table", s.Table, facts) {
		j.key("stock.sku.column", s.SKU.Column, s.SKU.Type)
		j.unique("stock.sku.index", s.SKU)
		j.column("stock.available", s.Available)
		j.optional("stock.reserved", s.Reserved)
	}
	return j.problems
}

// judge looks at one table after the other.
type judge struct {
	checker
	name  string
	table Table
}

func (j *judge) orders(m *Mapping, name string, facts Facts) {
	if !j.enter("table", name, facts) {
		return
	}
	j.key("id.column", m.ID.Column, m.ID.Type)
	j.unique("id.index", m.ID)
	j.status(m.Status)
	j.moment("due", &m.Due)
	j.moment("created", m.Created)
	j.moment("closed_at", m.ClosedAt)
	j.optional("category", m.Category)
	j.optional("version", m.Version)
	j.dueIndex(m)
}

// enter turns to a table, if it is there.
func (j *judge) enter(path, name string, facts Facts) bool {
	table, ok := facts[name]
	if !ok {
		j.say(path, fmt.Sprintf("there is no table %s, or this user may not see it", name), "mend the name, or grant SELECT and UPDATE on the table")
		return false
	}
	j.name, j.table = name, table
	if !strings.EqualFold(table.Engine, "InnoDB") {
		j.say(path, fmt.Sprintf("table %s has the engine %s, which has no transactions", name, table.Engine), "ALTER TABLE "+Quote(name)+" ENGINE = InnoDB")
	}
	return true
}

func (j *judge) where(column string) string { return "column " + j.name + "." + column }

func (j *judge) column(path, name string) (Column, bool) {
	c, ok := j.table.Columns[strings.ToLower(name)]
	if !ok {
		j.say(path, "there is no "+j.where(name), "mend the name, or add the column")
	}
	return c, ok
}

// quantity wants whole numbers: of a text or a fraction no order could be closed.
func (j *judge) quantity(path, name string) {
	c, ok := j.column(path, name)
	if ok && !slices.Contains(integerTypes, c.Type) && !(c.Type == "decimal" && strings.Contains(c.Definition, ",0)")) {
		j.say(path, fmt.Sprintf("%s is %s, which may hold other than whole numbers", j.where(name), c.Definition),
			"map a column of whole numbers; one can be added as a generated column: CAST("+name+" AS SIGNED)")
	}
}

func (j *judge) optional(path, name string) {
	if name != "" {
		j.column(path, name)
	}
}

func (j *judge) key(path, name string, t KeyType) {
	c, ok := j.column(path, name)
	if !ok || !j.readable(path, name, c) {
		return
	}
	if wants, is := t == Integer, slices.Contains(integerTypes, c.Type); wants != is {
		do := "write type: text"
		if is {
			do = "write type: integer"
		}
		j.say(path, fmt.Sprintf("%s is %s, and is mapped as %s", j.where(name), c.Definition, t), do)
	}
}

// readable wants what can be written as text: records, receipts and the ledger have
// ids and SKUs as such.
func (j *judge) readable(path, name string, c Column) bool {
	if !slices.Contains(binaryTypes, c.Type) {
		return true
	}
	j.say(path, fmt.Sprintf("%s is %s, and an id or SKU has to be text or a whole number", j.where(name), c.Definition),
		"map a stored generated column with its text, and an index like this one's: "+name+"_text VARCHAR(64) AS (HEX("+name+")) STORED, or on MySQL CHAR(36) AS (BIN_TO_UUID("+name+")) STORED")
	return false
}

func (j *judge) status(s Status) {
	c, ok := j.column("status.column", s.Column)
	if !ok {
		return
	}
	number := slices.Contains(integerTypes, c.Type)
	switch {
	case number && !s.From.Number:
		j.say("status", fmt.Sprintf("%s is %s, and its values are text", j.where(s.Column), c.Definition), "write the values without quotes")
	case !number && s.From.Number:
		j.say("status", fmt.Sprintf("%s is %s, and its values are numbers", j.where(s.Column), c.Definition), "write the values in quotes: compared with a number, no index would be used")
	case !number && !slices.Contains(textTypes, c.Type):
		j.say("status.column", fmt.Sprintf("%s is %s", j.where(s.Column), c.Definition), "map a column that holds whole numbers or text")
	case c.Type == "enum":
		for path, v := range map[string]Value{"status.from": s.From, "status.to": s.To} {
			if !strings.Contains(strings.ToLower(c.Definition), "'"+strings.ToLower(v.Text)+"'") {
				j.say(path, fmt.Sprintf("%s is %s, which has no %v", j.where(s.Column), c.Definition, v), "mend the value, or add it to the column")
			}
		}
	}
}

func (j *judge) moment(path string, m *Moment) {
	if m == nil {
		return
	}
	c, ok := j.column(path+".column", m.Column)
	if !ok {
		return
	}
	fits := c.Type == string(m.Type)
	if m.Type == UnixSeconds || m.Type == UnixMillis {
		fits = slices.Contains(integerTypes, c.Type)
	}
	switch {
	case !fits:
		j.say(path+".type", fmt.Sprintf("%s is %s, and is mapped as %s", j.where(m.Column), c.Definition, m.Type), "write the type of the column; one that is none of those can be turned into a stored generated column")
	case m.Type == UnixMillis && c.Type != "bigint":
		j.say(path+".type", fmt.Sprintf("%s is %s, which cannot hold milliseconds", j.where(m.Column), c.Definition), "write type: unix_s")
	case c.Digits > m.Precision.digits() && m.Precision != "":
		j.say(path+".precision", fmt.Sprintf("%s is %s, and is mapped with the precision %s", j.where(m.Column), c.Definition, m.Precision), "write ms for DATETIME(3), us for DATETIME(6)")
	}
}

// unique wants the key's index: rows are found and locked through it.
func (j *judge) unique(path string, k Key) {
	for _, i := range j.table.Indexes {
		if strings.EqualFold(i.Name, k.Index) && i.Unique && slices.Equal(i.Columns, []string{strings.ToLower(k.Column)}) {
			return
		}
	}
	do := "add one: ALTER TABLE " + Quote(j.name) + " ADD UNIQUE KEY " + Quote(k.Column) + " (" + Quote(k.Column) + "), and name it here"
	for _, i := range j.table.Indexes {
		if i.Unique && slices.Equal(i.Columns, []string{strings.ToLower(k.Column)}) {
			do = "name the one that is there, index: " + i.Name
		}
	}
	j.say(path, fmt.Sprintf("table %s has no unique index %s on %s alone", j.name, k.Index, k.Column), do)
}

// dueIndex wants an index on status, due and, as the last one, id, which InnoDB
// adds by itself if it is the primary key.
func (j *judge) dueIndex(m *Mapping) {
	status, due, id := strings.ToLower(m.Status.Column), strings.ToLower(m.Due.Column), strings.ToLower(m.ID.Column)
	add := fmt.Sprintf("CREATE INDEX %s ON %s (%s, %s, %s)", Quote("orderclose_overdue"), Quote(j.name), Quote(m.Status.Column), Quote(m.Due.Column), Quote(m.ID.Column))
	for _, i := range j.table.Indexes {
		named := m.DueIndex == "" || strings.EqualFold(i.Name, m.DueIndex)
		whole := slices.Equal(i.Columns[:min(3, len(i.Columns))], []string{status, due, id})
		if named && (whole || m.ID.Index == primary && slices.Equal(i.Columns, []string{status, due})) {
			return
		}
	}
	what := fmt.Sprintf("table %s has no index on %s, %s and %s: each page of a sweep would read all of it", j.name, m.Status.Column, m.Due.Column, m.ID.Column)
	if m.DueIndex != "" {
		what = fmt.Sprintf("table %s has no index %s on %s, %s and %s", j.name, m.DueIndex, m.Status.Column, m.Due.Column, m.ID.Column)
	}
	j.say("due.index", what, add)
}

// led wants an index that begins with the column.
func (j *judge) led(path, column, name string) {
	for _, i := range j.table.Indexes {
		if i.Columns[0] == strings.ToLower(column) {
			return
		}
	}
	j.say(path, fmt.Sprintf("table %s has no index that begins with %s", j.name, column),
		fmt.Sprintf("CREATE INDEX %s ON %s (%s)", Quote(name), Quote(j.name), Quote(column)))
}
