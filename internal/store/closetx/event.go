package closetx

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// keptEvent is the form of an event in outbox_events. It omits what the row's order_id and its
// other fields determine, so it has a third of the bytes of the CloudEvent. Each close writes
// one, and the database writes these bytes three times. Services that close orders write this form
// too, by docs/http.md: a field keeps its name and meaning.
type keptEvent struct {
	Type     string                     `json:"event,omitempty"`
	Category string                     `json:"category,omitempty"`
	Due      *time.Time                 `json:"due_at"` // always set: marks the payload as a keptEvent
	ClosedAt time.Time                  `json:"closed_at"`
	Path     orderclose.Path            `json:"path"`
	Attempts int                        `json:"attempts,omitempty"`
	Version  int64                      `json:"version,omitempty"`
	Release  map[string]int64           `json:"release,omitempty"` // by SKU
	Columns  map[string]json.RawMessage `json:"columns,omitempty"`
	// Traceparent is the W3C trace context of the close. It becomes a header of the event's record.
	Traceparent string `json:"traceparent,omitempty"`
}

// EncodeKept encodes an event for the outbox. returned has the quantities by SKU, in place of e.Release.
func EncodeKept(e orderclose.OrderClosed, returned map[string]int64, traceparent string) (string, error) {
	k := keptEvent{e.Type, e.Category, &e.Due, e.ClosedAt, e.Path, e.Attempts, e.Version, returned, e.Columns, traceparent}
	payload, err := json.Marshal(k)
	if err != nil {
		return "", fmt.Errorf("event of order %q: %w", e.OrderID, err)
	}
	return string(payload), nil
}

// ExpandEvent returns the CloudEvent of a row of outbox_events. If EncodeKept did not write the
// payload, ExpandEvent returns the payload as it is.
func ExpandEvent(orderID string, payload []byte) []byte {
	event, _ := ExpandTraced(orderID, payload)
	return event
}

// ExpandTraced is ExpandEvent, and also returns the traceparent of the payload, "" if it has none.
func ExpandTraced(orderID string, payload []byte) (event []byte, traceparent string) {
	var k keptEvent
	if err := json.Unmarshal(payload, &k); err != nil || k.Due == nil {
		return payload, k.Traceparent
	}
	e := orderclose.OrderClosed{
		Type: k.Type, OrderID: orderID, Category: k.Category, Due: *k.Due, ClosedAt: k.ClosedAt,
		Path: k.Path, Attempts: k.Attempts, Version: k.Version, Columns: k.Columns,
	}
	for _, sku := range slices.Sorted(maps.Keys(k.Release)) {
		e.Release = append(e.Release, orderclose.Release{SKU: sku, Quantity: k.Release[sku], Key: wire.ReleaseKey(orderID, sku, KindClose)})
	}
	whole, err := e.Encode()
	if err != nil {
		return payload, k.Traceparent // a time outside the years of RFC 3339, which EncodeKept refuses too
	}
	return whole, k.Traceparent
}

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
		of := eventValue(e.values[i], e.types[i].DatabaseTypeName())
		value, err := json.Marshal(of)
		if err != nil { // NaN and Infinity of PostgreSQL
			value, _ = json.Marshal(fmt.Sprint(of))
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
