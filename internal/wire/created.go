package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/orderclose/orderclose"
)

// createdName is the name of the creation time in a value.
var createdName = []byte(`"created_at":`)

// QuickCreated returns the creation time in a value without decoding the value. It may be wrong, such as that of an attribute with
// this name: decode the value before you act on it.
func QuickCreated(value []byte) (created time.Time, ok bool) {
	_, rest, _ := bytes.Cut(value, createdName)
	_, rest, _ = bytes.Cut(rest, []byte{'"'})
	digits, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return created, false
	}
	created, err := time.Parse(time.RFC3339, string(digits))
	return created, err == nil
}

// IsFirst reports whether no stage and no person has sent the record again. Relays forward records unchanged.
func (r Record) IsFirst() bool {
	return r.Attempt == 0 && r.NotDue == 0 && r.Cause == "" && r.Lane == "" && r.PendingSince.IsZero() &&
		r.Release.Equal(orderclose.CeilMilli(r.Order.Due))
}

// Order returns the order of a row of ScheduleOutbox, without its attributes. The error is a *RecordError.
func (row OutboxRow) Order() (orderclose.Order, error) {
	var id identity
	if err := json.Unmarshal(row.Payload, &id); err != nil {
		return orderclose.Order{}, jsonProblem(row.Payload, err)
	}
	return id.order(row.OrderID)
}
