package orderclose

import (
	"encoding/json"
	"fmt"
	"time"
)

// EventOrderReminder is the CloudEvents type of the event that reminds of an unpaid order before its
// deadline.
const EventOrderReminder = "order.reminder"

// OrderReminder is the event that an order is still unpaid some time before its deadline. The order was
// unpaid when the event was written, and may be paid when it is read. The event is delivered at least
// once. Every duplicate has the same ID.
type OrderReminder struct {
	OrderID  string    `json:"order_id"`
	Category string    `json:"category,omitempty"`
	Due      time.Time `json:"due_at"`      // when the order is closed if it is still unpaid
	Deadline time.Time `json:"deadline_at"` // until when the customer is asked to pay: Due without the grace of the order's rule
	// BeforeMillis is how long before Deadline the customer is reminded, in milliseconds: an entry of
	// remind in topics.yaml.
	BeforeMillis int64     `json:"before_ms"`
	RemindedAt   time.Time `json:"reminded_at"`       // when the event was written, by the database's clock
	Version      int64     `json:"version,omitempty"` // of the order, as in OrderClosed: smaller than that of the close
	// Columns holds further columns of the order, as in OrderClosed.
	Columns map[string]json.RawMessage `json:"columns,omitempty"`
}

// ID returns the event's id. It has the due time, because an order whose due time moves is reminded again.
func (e OrderReminder) ID() string {
	return fmt.Sprintf("%s/%s/%d/%d", EventOrderReminder, e.OrderID, e.Due.UnixMilli(), e.BeforeMillis)
}

// Encode returns the event as a CloudEvents 1.0 JSON object. The error says that a time is outside of the years
// of RFC 3339.
func (e OrderReminder) Encode() ([]byte, error) {
	return encodeEvent(e.ID(), EventOrderReminder, e.OrderID, e.RemindedAt, &e)
}

// DecodeOrderReminder decodes an event that Encode wrote, and returns it with its id. The error wraps
// ErrOtherEvent if value is a CloudEvent of another type, and otherwise ErrBadEvent.
func DecodeOrderReminder(value []byte) (id string, e OrderReminder, err error) {
	id, err = decodeEvent(value, EventOrderReminder, &e)
	return id, e, err
}
