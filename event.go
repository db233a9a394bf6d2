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

// EventOrderPaidLate is the CloudEvents type of the event for money that came for an order that was
// closed, cancelled or paid by another payment before.
const EventOrderPaidLate = "order.paid_late"

// EventOrderPaid is the CloudEvents type of the event for an order that orderclose has marked as paid,
// because the payment provider said so.
const EventOrderPaid = "order.paid"

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

// OrderPaidLate is the event for a late payment: the customer has paid, and gets nothing unless the shop
// gives the money back or reopens the order. It is written in the transaction that finds the
// payment and delivered at least once. Every duplicate has the same ID.
type OrderPaidLate struct {
	OrderID string `json:"order_id"`
	// PaymentID is the provider's id of the payment. It is empty if the provider was asked about the order
	// and told no id. An event with an id may follow for the same money.
	PaymentID string `json:"payment_id,omitempty"`
	Amount    int64  `json:"amount,omitempty"`   // in minor units of Currency, such as cents
	Currency  string `json:"currency,omitempty"` // ISO 4217; empty: the amount is unknown
	// Source is callback, or recheck if the provider was asked. same_id is a callback of money that may have gone back, or may have
	// paid the order once: a person decides.
	Source  string    `json:"source"`
	FoundAt time.Time `json:"found_at"` // by the database's clock
}

// ID returns the event's id: its type, the order id after its length in bytes, and the payment.
func (e OrderPaidLate) ID() string {
	return fmt.Sprintf("%s/%d:%s/%s", EventOrderPaidLate, len(e.OrderID), e.OrderID, e.PaymentID)
}

// Encode returns the event as a CloudEvents 1.0 JSON object.
func (e OrderPaidLate) Encode() ([]byte, error) {
	return encodeEvent(e.ID(), EventOrderPaidLate, e.OrderID, e.FoundAt, &e)
}

// DecodeOrderPaidLate decodes an event that Encode wrote, and returns it with its id. The error wraps
// ErrOtherEvent if value is a CloudEvent of another type, and otherwise ErrBadEvent.
func DecodeOrderPaidLate(value []byte) (id string, e OrderPaidLate, err error) {
	id, err = decodeEvent(value, EventOrderPaidLate, &e)
	return id, e, err
}

// OrderPaid is the event for an order that was marked as paid because the payment provider was asked before
// the close, and had the money: the provider's callback may be lost. It is written in the transaction
// that marks the order, and delivered at least once. Every duplicate has the same ID. An order that the
// shop itself marks as paid has none.
type OrderPaid struct {
	OrderID  string                     `json:"order_id"`
	Category string                     `json:"category,omitempty"`
	Due      time.Time                  `json:"due_at"`
	PaidAt   time.Time                  `json:"paid_at"`           // when the order was marked, by the database's clock
	Version  int64                      `json:"version,omitempty"` // as in OrderClosed
	Columns  map[string]json.RawMessage `json:"columns,omitempty"` // as in OrderClosed, before the order was marked
}

// ID returns the event's id: its type and the order id.
func (e OrderPaid) ID() string { return EventOrderPaid + "/" + e.OrderID }

// Encode returns the event as a CloudEvents 1.0 JSON object. The error says that a time is outside of the years
// of RFC 3339.
func (e OrderPaid) Encode() ([]byte, error) {
	return encodeEvent(e.ID(), EventOrderPaid, e.OrderID, e.PaidAt, &e)
}

// DecodeOrderPaid decodes an event that Encode wrote, and returns it with its id. The error wraps
// ErrOtherEvent if value is a CloudEvent of another type, and otherwise ErrBadEvent.
func DecodeOrderPaid(value []byte) (id string, e OrderPaid, err error) {
	id, err = decodeEvent(value, EventOrderPaid, &e)
	return id, e, err
}

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
	return encodeEvent(e.ID(), e.eventType(), e.OrderID, e.ClosedAt, &e)
}

func encodeEvent[Data any](id, eventType, orderID string, at time.Time, data Data) ([]byte, error) {
	value, err := json.Marshal(cloudEvent[Data]{
		SpecVersion: "1.0", ID: id, Source: EventSource, Type: eventType, Subject: orderID,
		Time: at, ContentType: "application/json", Data: data,
	})
	if err != nil {
		return nil, fmt.Errorf("event of order %s: %w", strconv.Quote(orderID), err)
	}
	return value, nil
}

var (
	// ErrOtherEvent means that a CloudEvent has another type than the caller asked for. Skip it.
	ErrOtherEvent = errors.New("an event of another type")
	// ErrBadEvent means that bytes are no event, or one of a version of CloudEvents that this program does not know. Decode functions take
	// the value of a record of Kafka, and the body of a request of orderclose run webhook. They ignore fields that they do not know.
	ErrBadEvent = errors.New("an event that cannot be read")
)

// DecodeOrderClosed decodes an event that Encode wrote, and returns it with its id.
// The error wraps ErrOtherEvent if value is a CloudEvent of another type, and otherwise ErrBadEvent.
func DecodeOrderClosed(value []byte) (id string, e OrderClosed, err error) {
	return DecodeClosed(value, EventOrderClosed)
}

// DecodeClosed is DecodeOrderClosed for events of the given type.
func DecodeClosed(value []byte, eventType string) (id string, e OrderClosed, err error) {
	id, err = decodeEvent(value, eventType, &e)
	if err == nil && eventType != EventOrderClosed {
		e.Type = eventType
	}
	return id, e, err
}

// decodeEvent decodes the data of a CloudEvent of the given type, and returns its id.
func decodeEvent(value []byte, eventType string, data any) (id string, err error) {
	var c cloudEvent[json.RawMessage]
	if err := json.Unmarshal(value, &c); err != nil {
		return "", fmt.Errorf("%w: not a CloudEvent in JSON: %w", ErrBadEvent, err)
	}
	switch {
	case c.SpecVersion != "1.0" || c.ID == "":
		return "", fmt.Errorf("%w: not a CloudEvent 1.0: specversion is %q, id is %q", ErrBadEvent, cut(c.SpecVersion, 32), cut(c.ID, MaxIDBytes))
	case c.Type != eventType:
		return c.ID, fmt.Errorf("%w: %q", ErrOtherEvent, cut(c.Type, 64))
	}
	if err := json.Unmarshal(c.Data, data); err != nil {
		return c.ID, fmt.Errorf("%w: the data of %q: %w", ErrBadEvent, cut(c.ID, 128), err)
	}
	return c.ID, nil
}
