package mapping

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

var (
	integerTypes = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}
	// In addition to integers; to eventTypes also short text.
	keyTypes    = []string{"varchar", "char", "tinytext", "text", "mediumtext", "longtext", "enum", "uuid"}
	statusTypes = []string{"varchar", "char", "enum", "tinytext", "text", "binary", "varbinary"}
	eventTypes  = []string{"decimal", "float", "double", "enum", "set", "uuid", "date", "time", "datetime", "timestamp", "timestamptz",
		"year", "boolean"}
	binaryTypes = []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit"}
)

func (d *databaseChecker) key(path, name string, t KeyType) {
	c, ok := d.column(path, name)
	if !ok || t.binary() && c.Definition == "binary(16)" || !d.readable(path, name, c) {
		return
	}
	is := Text
	switch {
	case slices.Contains(integerTypes, c.Type):
		is = Integer
	case c.Type == "uuid" && (d.table.Postgres || t == UUID):
		is = UUID
	}
	if t != is {
		do := "write type: " + string(is)
		d.reportHarm(path, fmt.Sprintf("%s is %s, and is mapped as %s", d.where(name), c.Definition, t),
			"text and numbers compare in other ways, and no index would be used", do)
	}
}

// readable checks that values of the column can be written as text and compared exactly:
// records and receipts hold ids and SKUs as text.
func (d *databaseChecker) readable(path, name string, c Column) bool {
	if slices.Contains(integerTypes, c.Type) || slices.Contains(keyTypes, c.Type) {
		return true
	}
	do := cmp.Or(d.varchar(name, c), "map a column of that kind; one can be added as a generated column with an index like this one's")
	if slices.Contains(binaryTypes, c.Type) {
		do = "for UUIDs in a BINARY(16) of MySQL write type: uuid_binary, or for those of UUID_TO_BIN(…, 1) uuid_binary_swapped; " +
			"else map a generated column with its text, and an index like this one's: " + name + "_text VARCHAR(64) AS (HEX(" + name + ")) VIRTUAL, " +
			"or on MySQL CHAR(36) AS (BIN_TO_UUID(" + name + ")) VIRTUAL"
	}
	d.reportHarm(path, fmt.Sprintf("%s is %s, and an id or SKU has to be text or a whole number", d.where(name), c.Definition),
		"a value of another kind changes when it is written as text, and may match the row of another order or SKU", do)
	return false
}

// varchar returns the statement that makes a varchar of a column that is padded with blanks in PostgreSQL; empty: it is not.
func (d *databaseChecker) varchar(name string, c Column) string {
	length, padded := strings.CutPrefix(c.Definition, "character(")
	if !padded {
		return ""
	}
	return "ALTER TABLE " + Quote(d.name) + " ALTER COLUMN " + Quote(name) + " TYPE varchar(" + length
}

// wholeNumbers checks for whole numbers: no order with text or a fraction as its quantity can be
// closed.
func (d *databaseChecker) wholeNumbers(path, name string) bool {
	c, ok := d.column(path, name)
	if !ok || slices.Contains(integerTypes, c.Type) || c.Type == "decimal" && strings.Contains(c.Definition, ",0)") {
		return ok
	}
	do := "map a column of whole numbers; stock of fractions can be moved by on_close, with stock: none"
	if strings.HasSuffix(path, "quantity") {
		do = "map a column of whole numbers, which can be added as a generated column: CAST(" + name + " AS SIGNED); or move fractions by on_close, with stock: none"
	}
	d.reportHarm(path, fmt.Sprintf("%s is %s, which can hold values that are not whole numbers", d.where(name), c.Definition),
		"a close moves whole pieces: a price would change, and text or a fraction fails each close", do)
	return false
}

// pieces checks that a column counts pieces, and does not number rows.
func (d *databaseChecker) pieces(path, name string) bool {
	c, _ := d.table.column(name)
	what := ""
	switch {
	case c.Numbered:
		what = "numbers its rows"
	case c.RefersTo != "":
		what = "refers to table " + c.RefersTo
	case d.identifies(name):
		what = "has a unique index of its own"
	default:
		return true
	}
	d.reportHarm(path, d.where(name)+" "+what, "a close would release as many pieces as its number", "map the column that holds the quantity of a line")
	return false
}

// writable checks that a close may write to the column. key is the column that identifies the
// row. remove is the mapping key to remove if the table has no such column; it is empty if
// the mapping needs the column.
func (d *databaseChecker) writable(path, name, key, remove string) bool {
	c, ok := d.column(path, name)
	if !ok {
		return false
	}
	do := "map the right column"
	if remove != "" {
		do += ", or remove " + remove
	}
	what, why := "", ""
	switch index := d.uniqueWithout(name, key); {
	case c.Generated:
		what, why = "is a generated column", "the database refuses to have it written, and each close fails"
	case c.Numbered:
		what, why = "is numbered by the database (AUTO_INCREMENT)", "a close would change the number that identifies the row"
	case index != "":
		what, why = "is a part of the unique index "+index, "a close would change the value that identifies the row, or fail because another row has it"
	case c.RefersTo != "" && path != "status.column": // a shop may keep its statuses in a table of their own
		what, why = "refers to table "+c.RefersTo, "a close would make it refer to another row"
	default:
		return true
	}
	d.reportHarm(path, d.where(name)+" "+what, why, do)
	return false
}

// assignment checks that a constant can be written to a column. A number is no value of an ENUM: to MySQL it is a position, and PostgreSQL refuses it.
func (d *databaseChecker) assignment(path string, a ColumnValue, key string) {
	c, ok := d.column(path, a.Column)
	if ok && d.writable(path, a.Column, key, path) && (a.Value.Number && (c.Type == "enum" || c.Type == "boolean") || !c.takes(a.Value)) {
		d.reportHarm(path, fmt.Sprintf("%s is %s, which cannot hold %v", d.where(a.Column), c.Definition, a.Value),
			"the database refuses to write it, and each close fails, or writes another value",
			"write a constant of the column's type, of an ENUM or a boolean in quotes, or remove "+path+"; closed_at writes the time of the close")
	}
}

// conditionOn checks that a column can be compared with the constants of a condition.
func (d *databaseChecker) conditionOn(path string, w Condition) {
	c, ok := d.column(path, w.Column)
	alone := len(w.Any) == 1 && !w.Not
	for _, v := range w.Any {
		if ok && (alone || v != Value{} || c.Nullable) { // beside others NULL does no harm in a column that has none
			d.compared(path, w.Column, c, v)
		}
	}
}

func (d *databaseChecker) compared(path, name string, c Column, v Value) {
	null, number := v == Value{}, slices.Contains(integerTypes, c.Type) || c.Type == "bit" && !d.table.Postgres
	never := "every order would be excluded, and none is ever closed"
	if strings.HasPrefix(path, "items.") {
		never = "no line would count, and no stock would come back"
	}
	switch {
	case null && !c.Nullable:
		d.reportHarm(path, fmt.Sprintf("%s is %s, which is never NULL", d.where(name), c.Definition), never, "correct the value, or remove "+path)
	case null:
	case c.Type == "decimal" && c.holdsDecimal(v):
	case c.Type != "decimal" && (number != v.Number || !number && c.Type != "boolean" && !slices.Contains(statusTypes, c.Type)):
		d.reportHarm(path, fmt.Sprintf("%s is %s, and is compared with %v", d.where(name), c.Definition, v),
			"text and numbers compare in other ways, and orders would be excluded or closed by mistake",
			"for a column of whole numbers or a DECIMAL write a number without quotes, for one of text or a boolean one in quotes; "+
				"a column of another kind, such as a FLOAT, can only be compared with null: add a generated column of whole numbers or text for it")
	case c.Type == "decimal" || !c.holds(v):
		d.reportHarm(path, fmt.Sprintf("%s is %s, which cannot hold %v", d.where(name), c.Definition, v), never, "correct the value, or remove "+path)
	}
}

// maxEventColumn is the maximum length of a text in an event, in characters.
const maxEventColumn = 1024

// eventColumn checks that an event can hold the values of a column.
func (d *databaseChecker) eventColumn(path, name string) {
	c, ok := d.column(path, name)
	switch {
	case !ok || slices.Contains(eventTypes, c.Type) || slices.Contains(integerTypes, c.Type):
	case !slices.Contains([]string{"varchar", "char"}, c.Type):
		d.report(path, fmt.Sprintf("%s is %s, and numbers, short text and times only are read from here", d.where(name), c.Definition),
			"remove it, or read it from the database when the event arrives")
	case c.Length > maxEventColumn:
		d.report(path, fmt.Sprintf("%s is %s, and text of at most %d characters is read from here", d.where(name), c.Definition, maxEventColumn),
			"remove it, or read it from the database when the event arrives")
	}
}

// counter checks that a column counts changes.
func (d *databaseChecker) counter(path, name string, c Column) {
	switch {
	case !slices.Contains(integerTypes, c.Type):
		d.reportHarm(path, fmt.Sprintf("%s is %s", d.where(name), c.Definition), "a close adds one to it, which fails or destroys what it holds",
			"map a column of whole numbers, a time with its type as lock: {column, type, zone, precision}, or remove it")
	case c.Type == "tinyint":
		d.reportHarm(path, fmt.Sprintf("%s is %s, which is a flag or ends at a few changes", d.where(name), c.Definition), "a close adds one to it",
			"map a column of type INT or BIGINT that counts changes, or remove version")
	case d.indexLedBy(name) != "":
		d.reportHarm(path, d.where(name)+" leads the index "+d.indexLedBy(name),
			"rows are looked up by it, so it does not count changes, and a close adds one to it", "map the column that counts changes, or remove version")
	case strings.HasSuffix(strings.ToLower(name), "id"):
		d.reportAcceptable(VersionLikeID, path, d.where(name)+" has the name of an id", "a close adds one to it, and the order would belong to another",
			"map the column that counts changes, or remove version")
	}
}

// apartFromDue checks that a close does not write to a column from which the due time is generated.
func (d *databaseChecker) apartFromDue(m *Mapping) {
	due, _ := d.table.column(m.Due.Column)
	for _, p := range m.purposes(d.name, "", "") {
		written := p.table == d.name && p.effect != "" && p.path != "status.column" // the status may decide whether there is a due time
		if written && strings.Contains(due.Expression, "`"+strings.ToLower(p.column)+"`") {
			d.reportHarm(p.path, fmt.Sprintf("%s is generated from %s", d.where(m.Due.Column), p.column), p.effect+", and the due time changes with it", p.fix())
		}
	}
}

// notLookedUp checks that rows are not looked up by a column of quantities: such a column is an id.
func (d *databaseChecker) notLookedUp(path, name string) {
	if index := d.indexLedBy(name); index != "" { //mutant:id-as-quantity
		d.reportAcceptable(IndexedQuantity, path, d.where(name)+" leads the index "+index, "rows are looked up by it, so it is probably an id and no quantity",
			"map the column of the quantity")
	}
}

// notNumbered checks that a column of lines is not the number of the line itself.
func (d *databaseChecker) notNumbered(path, name, is string) {
	if c, _ := d.table.column(name); c.Numbered {
		d.reportHarm(path, d.where(name)+" numbers its rows (AUTO_INCREMENT)", "a close would return the stock of lines of other orders", "map the column with "+is)
	}
}

// modify writes the statement of MySQL that gives a column another definition, and keeps all else of it.
func (c Column) modify(table, column, definition string) string {
	return "ALTER TABLE " + Quote(table) + " MODIFY " + Quote(column) + " " + definition + map[bool]string{false: " NOT", true: ""}[c.Nullable] + " NULL" + c.Kept
}

// withoutNow writes the statement after which an INSERT that leaves the column out writes NULL.
func (c Column) withoutNow(t Table, table, column string) string {
	if t.Postgres {
		return "ALTER TABLE " + Quote(table) + " ALTER COLUMN " + Quote(column) + " DROP DEFAULT, ALTER COLUMN " + Quote(column) + " DROP NOT NULL"
	}
	_, comment, _ := strings.Cut(c.Kept, " COMMENT ")
	c.Nullable, c.Kept = true, " DEFAULT NULL"
	if comment != "" {
		c.Kept += " COMMENT " + comment
	}
	return c.modify(table, column, strings.ToUpper(c.Definition))
}

// writableTimes checks that only the shop writes the due and creation time, and that the
// time of the close is empty before the close.
func (d *databaseChecker) writableTimes(m *Mapping) {
	for _, t := range m.TimeColumns() {
		c, ok := d.table.column(t.Column)
		where := d.where(t.Column)
		further := t.Path == "lock" || strings.HasPrefix(t.Path, "closed_at[")                            // the shop may write it too
		still := "map the right column, or: " + c.modify(d.name, t.Column, strings.ToUpper(c.Definition)) // without ON UPDATE
		if c.Generated {
			still = "generate it from a column that an UPDATE leaves as it is, or map another one"
		}
		switch {
		case !ok:
		case c.OnUpdate && !further:
			d.reportHarm(t.Path+".column", where+" is set to the present moment with each UPDATE (ON UPDATE CURRENT_TIMESTAMP)",
				"any change of the row changes "+map[string]string{
					"due": "when it is due", "created": "when it was made", "closed_at": "when it was closed", "paid_at": "when it was paid",
				}[t.Path], still)
		case d.table.zoneDependence(c) != "":
			d.reportHarm(t.Path+".column", where+" is generated from "+d.table.zoneDependence(c),
				"its value depends on the time zone of the session that computes it, and an order could be closed hours early",
				"generate a DATETIME from DATETIME, and a TIMESTAMP or unix time from TIMESTAMP; or have the shop write the column")
		case t.Path == "due" && c.DefaultNow && !m.ByRule:
			d.reportHarm("due.column", where+" has the present moment as its default",
				"an order that is inserted without a due time would be due, and closed, at once; and a creation time looks like this",
				"map the column of the due time; a creation time is mapped as due: {from: "+t.Column+"}. If each INSERT of the shop writes the column: "+
					c.withoutNow(d.table, d.name, t.Column))
		case t.Path == "closed_at" && !c.Generated && (c.DefaultNow || !c.Nullable && !c.Default):
			d.reportHarm("closed_at.column", where+" has a value from when the row is inserted", "a close would overwrite it; a creation time looks like this",
				"map the column of the moment of the close, or remove closed_at; map a column of the last change as lock; or, if it is that column: "+
					c.withoutNow(d.table, d.name, t.Column))
		case further && c.DefaultNow && !c.OnUpdate && !lockNames.MatchString(strings.ToLower(t.Column)):
			d.reportAcceptable(LockLikeCreated, t.Path+".column", where+" has the present moment as its default, as a creation time has",
				"a close would overwrite it", "map the column of the last change, or remove "+t.Path)
		case t.Path == "closed_at" || further:
			d.writable(t.Path+".column", t.Column, m.ID.Column, t.Path)
		}
	}
}

// status checks that the type of the status column fits the values of the mapping.
func (d *databaseChecker) status(s Status) {
	c, ok := d.column("status.column", s.Column)
	if !ok {
		return
	}
	number := slices.Contains(integerTypes, c.Type)
	switch {
	case number && !s.To.Number:
		d.reportHarm("status", fmt.Sprintf("%s is %s, and its values are text", d.where(s.Column), c.Definition), "the database compares any text as 0",
			"write the values without quotes")
	case !number && s.To.Number:
		d.reportHarm("status", fmt.Sprintf("%s is %s, and its values are numbers", d.where(s.Column), c.Definition),
			"compared with a number, no index would be used", "write the values in quotes")
	case !number && !slices.Contains(statusTypes, c.Type):
		d.reportHarm("status.column", fmt.Sprintf("%s is %s", d.where(s.Column), c.Definition), "its values cannot be compared as text",
			cmp.Or(d.varchar(s.Column, c), "map a column that holds whole numbers or text"))
	default:
		d.statusValues(s, c)
	}
}

// statusValues checks that the column can hold the values and distinguishes them.
func (d *databaseChecker) statusValues(s Status, c Column) {
	type value struct {
		path string
		Value
	}
	all := []value{{"status.to", s.To}}
	for _, v := range s.From {
		all = append(all, value{"status.from", v})
	}
	written := len(all)
	for i, v := range s.Paid {
		all = append(all, value{fmt.Sprintf("status.paid[%d]", i), v})
	}
	for i, v := range s.Closed {
		all = append(all, value{fmt.Sprintf("status.closed[%d]", i), v})
	}
	for i, v := range all {
		if (i < written || v.path == "status.paid[0]" || d.table.Postgres && c.Type == "enum") && !c.holds(v.Value) {
			why := "the database refuses it, and each close fails"
			if v.path == "status.from" {
				why = "no order has this status, and none is ever closed"
			}
			do := "correct the value, or add it to the column"
			if slices.Contains(binaryTypes, c.Type) {
				do = "a binary status cannot be mapped: close through a service, closer.http.url"
			}
			d.reportHarm(v.path, fmt.Sprintf("%s is %s, which has no %v", d.where(s.Column), c.Definition, v.Value), why, do)
			continue
		}
		for _, o := range all[:i] {
			if v.Value != o.Value && c.same(v.Value, o.Value) {
				d.reportHarm(v.path, fmt.Sprintf("%s has the collation %s, to which %v and %v are the same", d.where(s.Column), c.Collation, o.Value, v.Value),
					"an order of one status would be taken for one of the other", "list one of them only")
				break
			}
		}
	}
}

// same reports whether the column's collation treats two values as equal, as far as case and
// trailing spaces matter.
func (c Column) same(a, b Value) bool {
	if a.Number || b.Number || c.Collation == "" {
		return false
	}
	x, y := strings.TrimRight(a.Text, " "), strings.TrimRight(b.Text, " ")
	return x == y || !c.mindsCase() && strings.EqualFold(x, y)
}

// mindsCase reports whether the column's collation tells upper from lower case.
func (c Column) mindsCase() bool {
	return strings.HasSuffix(c.Collation, "_bin") || strings.HasSuffix(c.Collation, "_cs")
}

// digits is how to write the precision of a column.
const digits = "write s for DATETIME, ms for DATETIME(3), us for DATETIME(6), in PostgreSQL us unless the type has a precision"

// timeColumn checks that the type of a column fits its mapping.
func (d *databaseChecker) timeColumn(path string, m *TimeColumn) {
	c, ok := d.column(path+".column", m.Column)
	if !ok {
		return
	}
	fits := c.Type == string(m.Type)
	if m.Type == UnixSeconds || m.Type == UnixMillis {
		fits = c.Type == "int" || c.Type == "bigint" // no smaller type holds a unix time
	}
	do := "write the type of the column; for a column of another type, map a generated column"
	if d.table.Postgres {
		do = map[string]string{
			"timestamptz": "write type: timestamptz", "datetime": "write type: datetime, and in zone the time zone in which the shop writes it",
			"date": "map the column with the time of the day: a date does not say when the order is due",
		}[c.Type]
		do = cmp.Or(do, "write the type of the column, or map one of type timestamptz")
	}
	switch {
	case !fits:
		d.reportHarm(path+".type", fmt.Sprintf("%s is %s, and is mapped as %s", d.where(m.Column), c.Definition, m.Type),
			"its values would be read as other moments", do)
	case m.Type == UnixMillis && c.Type != "bigint":
		d.reportHarm(path+".type", fmt.Sprintf("%s is %s, which cannot hold milliseconds", d.where(m.Column), c.Definition),
			"seconds would be read as milliseconds, in 1970", "write type: unix_s")
	case c.Digits > m.Precision.digits() && m.Precision != "":
		d.reportHarm(path+".precision", fmt.Sprintf("%s is %s, and is mapped with the precision %s", d.where(m.Column), c.Definition, m.Precision),
			"orders would be closed up to one step early, or not be found", digits)
	case c.Digits < m.Precision.digits() && strings.HasSuffix(path, "lock"):
		d.reportHarm(path+".precision", fmt.Sprintf("%s is %s, and is mapped with the precision %s", d.where(m.Column), c.Definition, m.Precision),
			"the column rounds one step more off, so a close leaves the lock as it was, and code that compares it overwrites the close", digits)
	}
}
