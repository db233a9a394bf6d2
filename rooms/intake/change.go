package intake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/wire"
)

// Format is how a topic writes changes of rows.
type Format string

const (
	// Debezium is the envelope of Debezium in JSON, with or without its schema, and the flat rows that its
	// transformation ExtractNewRecordState leaves of it.
	Debezium Format = "debezium"
	Canal    Format = "canal"   // the flat messages of Canal, with several rows each
	Maxwell  Format = "maxwell" // the JSON of Maxwell's daemon
)

// row is a row of a table, in JSON by column.
type row map[string]json.RawMessage

// change is a change of a row. The columns of before have the values before the change. A column that before does
// not have is unchanged if whole is not set, and unknown otherwise.
type change struct {
	row, before row
	whole       bool
	// withoutColumns is what became of a row that has no column that decides, except the id. Empty: the record is wrong.
	withoutColumns outcome
}

// source names a table.
type source struct{ database, table string }

// readChange decodes the value of a change record. Without rows the record is of no concern here, and skip says why.
// The error is a *wire.RecordError.
func readChange(f Format, value []byte) (from source, changes []change, skip outcome, err error) {
	text := bytes.TrimSpace(value)
	switch {
	case len(text) == 0 || string(text) == "null": // a tombstone, which a converter may write as JSON
		return from, nil, deleted, nil
	case text[0] != '{':
		err = errors.New("it is no object in JSON, and other encodings, such as Avro, are not read")
	case f == Canal || f == Maxwell:
		from, changes, skip, err = readFlat(value)
	default:
		from, changes, skip, err = readDebezium(value)
	}
	if err != nil {
		err = &wire.RecordError{Reason: wire.ErrBadValue, Detail: fmt.Sprintf("the value is no change record of %s: %v", f, err)}
	}
	return from, changes, skip, err
}

// readDebezium takes a value with a member op for an envelope. A flat row may have columns of any other name.
func readDebezium(value []byte) (from source, changes []change, skip outcome, err error) {
	var top row
	if err := json.Unmarshal(value, &top); err != nil {
		return from, nil, "", err
	}
	if payload := top["payload"]; payload != nil && top["schema"] != nil {
		if value, top = payload, nil; json.Unmarshal(value, &top) != nil {
			return from, nil, "", errors.New("its payload is no object")
		}
	}
	op, enveloped := top.text("op")
	if !enveloped || !bytes.HasPrefix(top["source"], []byte("{")) {
		if gone, _ := top.text("__deleted"); top == nil || gone == "true" {
			return from, nil, deleted, nil
		}
		c := change{row: top, whole: true}
		if top["op"] == nil && top["after"] == nil { // perhaps a heartbeat, a change of the schema or the end of a transaction
			c.withoutColumns = deleted
		}
		return from, []change{c}, "", nil
	}
	var envelope struct {
		Before, After row
		Source        struct{ DB, Schema, Table string }
	}
	if err := json.Unmarshal(value, &envelope); err != nil {
		return from, nil, "", err
	}
	from = source{cmp.Or(envelope.Source.Schema, envelope.Source.DB), envelope.Source.Table} // PostgreSQL has a schema, and MySQL none
	if slices.Contains([]string{"c", "r", "u"}, op) && envelope.After != nil {
		return from, []change{{row: envelope.After, before: envelope.Before, whole: true}}, "", nil
	}
	return from, nil, deleted, nil
}

// readFlat reads a message of Canal, with several rows, or of Maxwell, with one.
func readFlat(value []byte) (from source, changes []change, skip outcome, err error) {
	var m struct {
		Database, Table, Type string
		IsDDL                 bool `json:"isDdl"`
		Data, Old             rows
	}
	if err := json.Unmarshal(value, &m); err != nil {
		return from, nil, "", err
	}
	if m.Type == "" {
		return from, nil, "", errors.New("it has no type")
	}
	if !m.IsDDL && slices.Contains([]string{"insert", "bootstrap-insert", "update"}, strings.ToLower(m.Type)) {
		for i, data := range m.Data {
			c := change{row: data}
			if strings.EqualFold(m.Type, "update") { // binlog_row_image=MINIMAL: changed columns only
				c.withoutColumns = unchanged
			}
			if i < len(m.Old) && len(m.Old[i]) > 0 { // empty: the log has no former values
				c.before = m.Old[i]
			}
			changes = append(changes, c)
		}
	}
	return source{m.Database, m.Table}, changes, deleted, nil
}

// rows are the rows of Canal, or the row of Maxwell, which is no list.
type rows []row

// UnmarshalJSON implements json.Unmarshaler.
func (r *rows) UnmarshalJSON(value []byte) error {
	if bytes.HasPrefix(value, []byte("{")) {
		value = slices.Concat([]byte("["), value, []byte("]"))
	}
	return json.Unmarshal(value, (*[]row)(r))
}

// isOrders reports whether a table is the mapped table of orders, or one of its months. A flat row names no table.
func isOrders(m *mapping.Mapping, from source) bool {
	if from.table == "" {
		return true
	}
	database, table := mapping.Split(m.Orders)
	if mapping.IsPattern(m.Orders) {
		p, err := mapping.ParsePattern(m.Orders)
		if err != nil {
			return false
		}
		if _, ok := p.Month(from.table); !ok {
			return false
		}
	} else if !strings.EqualFold(table, from.table) { // some servers write names in lower case; an order too many does no harm
		return false
	}
	return database == "" || strings.EqualFold(database, from.database)
}
