package tables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var (
	integerTypes = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}
	keyTypes     = []string{"varchar", "char", "tinytext", "text", "mediumtext", "longtext", "enum", "uuid"} // beside integers
	statusTypes  = []string{"varchar", "char", "enum", "tinytext", "text", "binary", "varbinary"}            // beside integers
	binaryTypes  = []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit"}
)

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
		j.harm(path, fmt.Sprintf("%s is %s, and is mapped as %s", j.where(name), c.Definition, t), "text and numbers compare in other ways, and no index would be used", do)
	}
}

// readable wants what can be written as text and compared exactly: records, receipts
// and the ledger have ids and SKUs as text.
func (j *judge) readable(path, name string, c Column) bool {
	if slices.Contains(integerTypes, c.Type) || slices.Contains(keyTypes, c.Type) {
		return true
	}
	do := "map a column of that kind; one can be added as a generated column with an index like this one's"
	if slices.Contains(binaryTypes, c.Type) {
		do = "map a generated column with its text, and an index like this one's: " + name + "_text VARCHAR(64) AS (HEX(" + name + ")) VIRTUAL, or on MySQL CHAR(36) AS (BIN_TO_UUID(" + name + ")) VIRTUAL"
	}
	j.harm(path, fmt.Sprintf("%s is %s, and an id or SKU has to be text or a whole number", j.where(name), c.Definition),
		"a value of another kind does not survive being written as text, and may find the row of another", do)
	return false
}

// whole wants whole numbers: of a text or a fraction no order could be closed.
func (j *judge) whole(path, name string) bool {
	c, ok := j.column(path, name)
	if !ok || slices.Contains(integerTypes, c.Type) || c.Type == "decimal" && strings.Contains(c.Definition, ",0)") {
		return ok
	}
	j.harm(path, fmt.Sprintf("%s is %s, which may hold other than whole numbers", j.where(name), c.Definition),
		"a close moves whole pieces: a price would change, and text or a fraction fails each close",
		"map a column of whole numbers; for items.quantity one can be added as a generated column: CAST("+name+" AS SIGNED)")
	return false
}

// amount wants a column that counts pieces, and not one that numbers rows.
func (j *judge) amount(path, name string) {
	c, _ := j.table.column(name)
	what := ""
	switch {
	case c.Numbered:
		what = "numbers its rows"
	case c.RefersTo != "":
		what = "refers to table " + c.RefersTo
	case j.identifies(name):
		what = "has a unique index of its own"
	default:
		return
	}
	j.harm(path, j.where(name)+" "+what, "a close would give back as many pieces as its number", "map the column that holds the quantity of a line")
}

// written wants a column that a close may write to. The row's key is the column
// through which rows are found; remove is the key to remove if there is no such column,
// empty if the mapping needs one.
func (j *judge) written(path, name, key, remove string) bool {
	c, ok := j.column(path, name)
	if !ok {
		return false
	}
	do := "map the column that is meant for it"
	if remove != "" {
		do += ", or remove " + remove
	}
	what, why := "", ""
	switch index := j.uniqueWithout(name, key); {
	case c.Generated:
		what, why = "is a generated column", "the database refuses to have it written, and each close fails"
	case c.Numbered:
		what, why = "is numbered by the database (AUTO_INCREMENT)", "a close would change by which number the row is known"
	case index != "":
		what, why = "is a part of the unique index "+index, "a close would change by which value the row is known, or fail because another row has it"
	case c.RefersTo != "" && path != "status.column": // statuses may stand in a table of their own
		what, why = "refers to table "+c.RefersTo, "a close would make it refer to another row"
	default:
		return true
	}
	j.harm(path, j.where(name)+" "+what, why, do)
	return false
}

// counter wants a column that counts changes.
func (j *judge) counter(name string, c Column) {
	switch {
	case !slices.Contains(integerTypes, c.Type):
		j.harm("version", fmt.Sprintf("%s is %s", j.where(name), c.Definition), "a close adds one to it, which fails or destroys what it holds", "map a column of whole numbers, or remove version")
	case j.leads(name) != "":
		j.harm("version", j.where(name)+" leads the index "+j.leads(name), "rows are looked up by it, so it does not count changes, and a close adds one to it", "map the column that counts changes, or remove version")
	}
}

// writtenMoments wants times that only the shop writes, and one of the close that is
// empty before it.
func (j *judge) writtenMoments(m *Mapping) {
	for _, t := range []struct {
		path   string
		moment *Moment
	}{{"due", &m.Due}, {"created", m.Created}, {"closed_at", m.ClosedAt}} {
		if t.moment == nil {
			continue
		}
		c, ok := j.table.column(t.moment.Column)
		where := j.where(t.moment.Column)
		alter := "ALTER TABLE " + Quote(j.name) + " MODIFY " + Quote(t.moment.Column) + " " + strings.ToUpper(c.Definition) + " NULL DEFAULT NULL"
		switch {
		case !ok:
		case c.OnUpdate:
			j.harm(t.path+".column", where+" is set to the present moment with each UPDATE (ON UPDATE CURRENT_TIMESTAMP)",
				"any change of the row changes "+map[string]string{"due": "when it is due", "created": "when it was made", "closed_at": "when it was closed"}[t.path],
				"map the right column, or: "+alter)
		case j.table.zoned(c) != "":
			j.harm(t.path+".column", where+" is generated from "+j.table.zoned(c), "its value depends on the time zone of the session that computes it, and an order could be closed hours early",
				"generate a DATETIME from DATETIME, and a TIMESTAMP or unix time from TIMESTAMP; or have the shop write the column")
		case t.path == "due" && c.DefaultNow:
			j.harm("due.column", where+" has the present moment as its default", "an order that is inserted without a due time would be due, and closed, at once; and a creation time looks like this",
				"map the column of the due time, or: "+alter)
		case t.path == "closed_at" && !c.Generated && (c.DefaultNow || !c.Nullable && !c.Default):
			j.harm("closed_at.column", where+" has a value from when the row is inserted", "a close would overwrite it; a creation time looks like this",
				"map the column of the moment of the close, remove closed_at, or, if it is that column: "+alter)
		case t.path == "closed_at":
			j.written("closed_at.column", t.moment.Column, m.ID.Column, "closed_at")
		}
	}
}

func (j *judge) status(s Status) {
	c, ok := j.column("status.column", s.Column)
	if !ok {
		return
	}
	number := slices.Contains(integerTypes, c.Type)
	switch {
	case number && !s.From.Number:
		j.harm("status", fmt.Sprintf("%s is %s, and its values are text", j.where(s.Column), c.Definition), "any text is 0 to the database", "write the values without quotes")
	case !number && s.From.Number:
		j.harm("status", fmt.Sprintf("%s is %s, and its values are numbers", j.where(s.Column), c.Definition), "compared with a number, no index would be used", "write the values in quotes")
	case !number && !slices.Contains(statusTypes, c.Type):
		j.harm("status.column", fmt.Sprintf("%s is %s", j.where(s.Column), c.Definition), "its values cannot be compared as text", "map a column that holds whole numbers or text")
	default:
		j.statusValues(s, c)
	}
}

// statusValues wants values that the column can hold, and that it tells apart.
func (j *judge) statusValues(s Status, c Column) {
	type value struct {
		path string
		Value
	}
	all := []value{{"status.from", s.From}, {"status.to", s.To}}
	for i, v := range s.Paid {
		all = append(all, value{fmt.Sprintf("status.paid[%d]", i), v})
	}
	for i, v := range s.Closed {
		all = append(all, value{fmt.Sprintf("status.closed[%d]", i), v})
	}
	for i, v := range all {
		if written := i < 2 || v.path == "status.paid[0]"; written && !c.holds(v.Value) {
			why := "the database refuses to write it, and each close fails"
			if v.path == "status.from" {
				why = "no order has this status, and none is ever closed"
			}
			j.harm(v.path, fmt.Sprintf("%s is %s, which has no %v", j.where(s.Column), c.Definition, v.Value), why, "correct the value, or add it to the column")
			continue
		}
		for _, o := range all[:i] {
			if v.Value != o.Value && c.same(v.Value, o.Value) {
				j.harm(v.path, fmt.Sprintf("%s has the collation %s, to which %v and %v are the same", j.where(s.Column), c.Collation, o.Value, v.Value),
					"an order of one status would be taken for one of the other", "list one of them only")
				break
			}
		}
	}
}

// holds says whether the column can hold a status.
func (c Column) holds(v Value) bool {
	definition := strings.ToLower(c.Definition)
	switch {
	case c.Type == "enum":
		return strings.Contains(definition, "'"+strings.ToLower(strings.ReplaceAll(v.Text, "'", "''"))+"'")
	case !v.Number:
		return c.Length == 0 || int64(len([]rune(v.Text))) <= c.Length
	}
	bits := map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}[c.Type]
	var err error
	if strings.Contains(definition, "unsigned") {
		_, err = strconv.ParseUint(v.Text, 10, bits)
	} else {
		_, err = strconv.ParseInt(v.Text, 10, bits)
	}
	return err == nil
}

// same says whether the column's collation takes two values for one, as far as their
// case and the space behind them go.
func (c Column) same(a, b Value) bool {
	if a.Number || b.Number || c.Collation == "" {
		return false
	}
	x, y := strings.TrimRight(a.Text, " "), strings.TrimRight(b.Text, " ")
	if strings.HasSuffix(c.Collation, "_bin") || strings.HasSuffix(c.Collation, "_cs") {
		return x == y
	}
	return strings.EqualFold(x, y)
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
		j.harm(path+".type", fmt.Sprintf("%s is %s, and is mapped as %s", j.where(m.Column), c.Definition, m.Type), "its values would be read as other moments",
			"write the type of the column; one that is none of those can be turned into a generated column")
	case m.Type == UnixMillis && c.Type != "bigint":
		j.harm(path+".type", fmt.Sprintf("%s is %s, which cannot hold milliseconds", j.where(m.Column), c.Definition), "seconds would be read as milliseconds, in 1970", "write type: unix_s")
	case c.Digits > m.Precision.digits() && m.Precision != "":
		j.harm(path+".precision", fmt.Sprintf("%s is %s, and is mapped with the precision %s", j.where(m.Column), c.Definition, m.Precision), "what is due within one step would be closed early, or not be found", "write ms for DATETIME(3), us for DATETIME(6)")
	}
}
