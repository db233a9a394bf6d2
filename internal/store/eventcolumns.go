package store

import (
	"database/sql"
	"encoding/json"
	"slices"
	"time"
)

// numberTypes are MySQL's types whose values become numbers in JSON. A DECIMAL stays text, because
// readers of JSON often take numbers for floats.
var numberTypes = []string{
	"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR", "FLOAT", "DOUBLE",
	"UNSIGNED TINYINT", "UNSIGNED SMALLINT", "UNSIGNED MEDIUMINT", "UNSIGNED INT", "UNSIGNED BIGINT",
}

// eventColumns reads the columns of Mapping.EventColumns from the rows of one query.
type eventColumns struct {
	names  []string
	types  []*sql.ColumnType // of the query's last columns; nil before the first row
	values []any
}

// into returns the destinations of the columns for a Scan.
func (e *eventColumns) into() []any {
	into := make([]any, len(e.names))
	e.values = make([]any, len(e.names))
	for i := range e.values {
		into[i] = &e.values[i]
	}
	return into
}

// read returns the values of the scanned row as JSON, by column. It returns nil without columns.
func (e *eventColumns) read(rows *sql.Rows) (map[string]json.RawMessage, error) {
	if len(e.names) == 0 {
		return nil, nil
	}
	if e.types == nil {
		all, err := rows.ColumnTypes()
		if err != nil {
			return nil, err
		}
		e.types = all[len(all)-len(e.names):]
	}
	columns := make(map[string]json.RawMessage, len(e.names))
	for i, name := range e.names {
		value, err := json.Marshal(eventValue(e.values[i], e.types[i].DatabaseTypeName()))
		if err != nil {
			return nil, err
		}
		columns[name] = value
	}
	return columns, nil
}

// eventValue returns the value that stands for a column's value in JSON. A time is text as the
// database writes it, in UTC for a TIMESTAMP or timestamptz; the zero date is null.
func eventValue(v any, databaseType string) any {
	switch v := v.(type) {
	case []byte:
		if slices.Contains(numberTypes, databaseType) {
			return json.Number(v)
		}
		return string(v)
	case time.Time:
		switch {
		case v.IsZero():
			return nil
		case databaseType == "DATE":
			return v.Format(time.DateOnly)
		}
		return v.UTC().Format("2006-01-02 15:04:05.999999")
	}
	return v
}
