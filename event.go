package orderclose

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// EventOrderClosed is the type of the event that tells of a close.
const EventOrderClosed = "order.closed"

// EventSource is the source of every event of this program.
const EventSource = "/orderclose"

// EventContentType is the value of the content-type header of an event's record:
// CloudEvents' structured mode.
const EventContentType = "application/cloudevents+json; charset=UTF-8"

// HeaderContentType is the header of an event's record that says what its value
// is.
const HeaderContentType = "content-type"

// OrderClosed tells that an order was closed. It is written in the transaction of
// the close and arrives at least once; every repeat has the same ID.
type OrderClosed struct {
	// Type is the type of the event where closing means something else, such as
	// order.receipt_confirmed; empty: EventOrderClosed.
	Type     string    `json:"-"`
	OrderID  string    `json:"order_id"`
	Category string    `json:"category,omitempty"`
	Due      time.Time `json:"due_at"`
	ClosedAt time.Time `json:"closed_at"` // by the database's clock
	Path     Path      `json:"path"`
	Attempts int       `json:"attempts"` // how often closing it failed before
	// Version counts the changes of the order, so that a reader who gets events out
	// of order knows which is the newer; 0 if the order's table has no such column.
	Version int64 `json:"version,omitempty"`
	// Release is the stock that the order held, each SKU once, in SKU order. If the
	// stock is in the database it is back already; who keeps it elsewhere releases
	// it, with the key as idempotency key.
	Release []Release `json:"release,omitempty"`
}

// Release is a quantity of one SKU that an order gives back.
type Release struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Key      string `json:"key"` // the same for each repeat; no other release has it
}

// ReleaseKey is the idempotency key of giving back the SKU of an order: its row
// in the stock ledger. Ids may hold any letter, so each part has its length.
func ReleaseKey(orderID, sku, kind string) string {
	return fmt.Sprintf("%d:%s/%d:%s/%s", len(orderID), orderID, len(sku), sku, kind)
}

// ID names the event. An order is closed once, so that its id and the type do.
func (e OrderClosed) ID() string { return e.eventType() + "/" + e.OrderID }

func (e OrderClosed) eventType() string { return cmp.Or(e.Type, EventOrderClosed) }

// cloudEvent is the JSON form of an event, CloudEvents 1.0. Its data are typed when
// it is written, so that they are written once: each close writes one.
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

// ErrOtherEvent says that a CloudEvent is of a type that is not asked for.
var ErrOtherEvent = errors.New("an event of another type")

// DecodeOrderClosed reads what Encode wrote and returns it with its id. The error
// wraps ErrOtherEvent if it is a CloudEvent of another type.
func DecodeOrderClosed(value []byte) (id string, e OrderClosed, err error) {
	return DecodeClosed(value, EventOrderClosed)
}

// DecodeClosed is DecodeOrderClosed for events of another type.
func DecodeClosed(value []byte, eventType string) (id string, e OrderClosed, err error) {
	var c cloudEvent[json.RawMessage]
	if err := json.Unmarshal(value, &c); err != nil {
		return "", e, fmt.Errorf("no CloudEvent in JSON: %w", err)
	}
	switch {
	case c.SpecVersion != "1.0" || c.ID == "":
		return "", e, fmt.Errorf("no CloudEvent 1.0: specversion is %q and id %q", cut(c.SpecVersion, 32), cut(c.ID, MaxIDBytes))
	case c.Type != eventType:
		return c.ID, e, fmt.Errorf("%w: %q", ErrOtherEvent, cut(c.Type, 64))
	}
	if err := json.Unmarshal(c.Data, &e); err != nil {
		return c.ID, e, fmt.Errorf("event %q: its data: %w", cut(c.ID, 128), err)
	}
	if eventType != EventOrderClosed {
		e.Type = eventType
	}
	return c.ID, e, nil
}
