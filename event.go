package orderclose

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// EventOrderClosed is the CloudEvents type of the event for a closed order.
const EventOrderClosed = "order.closed"

// EventSource is the CloudEvents source of every event of this program.
const EventSource = "/orderclose"

// EventContentType is the value of the content-type header of an event's record: the
// structured mode of CloudEvents.
const EventContentType = "application/cloudevents+json; charset=UTF-8"

// HeaderContentType is the header that holds the content type of an event's record.
const HeaderContentType = "content-type"

// OrderClosed is the event for a closed order. It is written in the transaction of
// the close and delivered at least once. Every duplicate has the same ID.
type OrderClosed struct {
	// Type is the type of the event if a close means something else, such as
	// order.receipt_confirmed. Empty means EventOrderClosed.
	Type     string    `json:"-"`
	OrderID  string    `json:"order_id"`
	Category string    `json:"category,omitempty"`
	Due      time.Time `json:"due_at"`
	ClosedAt time.Time `json:"closed_at"` // by the database's clock
	Path     Path      `json:"path"`
	Attempts int       `json:"attempts"` // failed attempts to close the order before this one
	// Version counts the changes of the order. With it a consumer that gets events
	// out of order can tell which one is newer. It is 0 if the order's table has no
	// such column.
	Version int64 `json:"version,omitempty"`
	// Columns holds further columns of the order as they were before the close, by name, if the
	// mapping of the order's table lists any. Numbers, text and null are as in the table; decimal
	// numbers and times are text.
	Columns map[string]json.RawMessage `json:"columns,omitempty"`
	// Release is the stock that the order held, each SKU once, in SKU order. Stock in
	// the database has been returned already. A service that keeps its own stock
	// returns it and uses Key as the idempotency key.
	Release []Release `json:"release,omitempty"`
}

// Release is a quantity of one SKU that a closed order returns to stock.
type Release struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Key      string `json:"key"` // the same in every duplicate, and unique to this release
}

// ID returns the event's id: its type and the order id. They are unique because an
// order is closed once.
func (e OrderClosed) ID() string { return e.eventType() + "/" + e.OrderID }

func (e OrderClosed) eventType() string { return cmp.Or(e.Type, EventOrderClosed) }

// cloudEvent is the JSON form of a CloudEvents 1.0 event. Data is a type parameter so
// that the data are marshalled once, not twice: every close writes an event.
type cloudEvent[Data any] struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"`
	Source      string    `json:"source"`
	Type        string    `json:"type"`
	Subject     string    `json:"subject,omitempty"`
	Time        time.Time `json:"time"`
	ContentType string    `json:"datacontenttype"`
	Data        Data      `json:"data"`
}

// Encode returns the event as a CloudEvents 1.0 JSON object.
func (e OrderClosed) Encode() ([]byte, error) {
	data, err := json.Marshal(cloudEvent[*OrderClosed]{
		SpecVersion: "1.0", ID: e.ID(), Source: EventSource, Type: e.eventType(), Subject: e.OrderID,
		Time: e.ClosedAt, ContentType: "application/json", Data: &e,
	})
	if err != nil {
		return nil, fmt.Errorf("event of order %s: %w", strconv.Quote(e.OrderID), err)
	}
	return data, nil
}

// ErrOtherEvent means that a CloudEvent has another type than the caller asked for.
var ErrOtherEvent = errors.New("an event of another type")

// DecodeOrderClosed decodes an event that Encode wrote, and returns it with its id.
// The error wraps ErrOtherEvent if value is a CloudEvent of another type.
func DecodeOrderClosed(value []byte) (id string, e OrderClosed, err error) {
	return DecodeClosed(value, EventOrderClosed)
}

// DecodeClosed is DecodeOrderClosed for events of the given type.
func DecodeClosed(value []byte, eventType string) (id string, e OrderClosed, err error) {
	var c cloudEvent[json.RawMessage]
	if err := json.Unmarshal(value, &c); err != nil {
		return "", e, fmt.Errorf("not a CloudEvent in JSON: %w", err)
	}
	switch {
	case c.SpecVersion != "1.0" || c.ID == "":
		return "", e, fmt.Errorf("not a CloudEvent 1.0: specversion is %q, id is %q", cut(c.SpecVersion, 32), cut(c.ID, MaxIDBytes))
	case c.Type != eventType:
		return c.ID, e, fmt.Errorf("%w: %q", ErrOtherEvent, cut(c.Type, 64))
	}
	if err := json.Unmarshal(c.Data, &e); err != nil {
		return c.ID, e, fmt.Errorf("decode the data of event %q: %w", cut(c.ID, 128), err)
	}
	if eventType != EventOrderClosed {
		e.Type = eventType
	}
	return c.ID, e, nil
}
