package mapping

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// holds reports whether the column can hold a status.
func (c Column) holds(v Value) bool {
	definition := strings.ToLower(c.Definition)
	switch {
	case c.Type == "boolean":
		return slices.Contains([]string{"0", "1", "true", "false"}, v.Text)
	case c.Type == "enum" && (c.Collation == "" || c.mindsCase()): // without a collation it is of PostgreSQL
		return strings.Contains(c.Definition, "'"+strings.ReplaceAll(v.Text, "'", "''")+"'")
	case c.Type == "enum":
		return strings.Contains(definition, "'"+strings.ToLower(strings.ReplaceAll(v.Text, "'", "''"))+"'")
	case !v.Number:
		return c.Length == 0 || int64(len([]rune(v.Text))) <= c.Length
	}
	bits := map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}[c.Type]
	var err error
	if width, isBit := strings.CutPrefix(definition, "bit("); isBit {
		bits, _ = strconv.Atoi(strings.TrimSuffix(width, ")"))
	}
	if c.Type == "bit" || strings.Contains(definition, "unsigned") {
		_, err = strconv.ParseUint(v.Text, 10, bits)
	} else {
		_, err = strconv.ParseInt(v.Text, 10, bits)
	}
	return err == nil
}

// timeLayouts are the forms of text that a column of the type takes.
var timeLayouts = map[string][]string{
	"date":      {time.DateOnly},
	"datetime":  {time.DateTime, time.DateOnly}, // a fraction of a second may follow
	"timestamp": {time.DateTime, time.DateOnly},

	"timestamptz": {time.DateTime, time.RFC3339, time.DateOnly},
	"time":        {time.TimeOnly},
}

// takes reports whether the database accepts a constant for the column. SQL in the constant is text
// to the database, not a function.
func (c Column) takes(v Value) bool {
	layouts, isTime := timeLayouts[c.Type]
	switch {
	case isTime:
		return slices.ContainsFunc(layouts, func(layout string) bool { _, err := time.Parse(layout, v.Text); return err == nil })
	case slices.Contains([]string{"decimal", "float", "double", "year"}, c.Type):
		_, err := strconv.ParseFloat(v.Text, 64)
		return err == nil
	case slices.Contains(integerTypes, c.Type):
		v.Number = true
	default:
		v.Number = false // a number is written as its digits
	}
	return c.holds(v)
}
