package store

import (
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

// encodeKept encodes an event for the outbox. returned has the quantities by SKU, in place of e.Release.
func encodeKept(e orderclose.OrderClosed, returned map[string]int64, traceparent string) (string, error) {
	k := keptEvent{e.Type, e.Category, &e.Due, e.ClosedAt, e.Path, e.Attempts, e.Version, returned, e.Columns, traceparent}
	payload, err := json.Marshal(k)
	if err != nil {
		return "", fmt.Errorf("event of order %q: %w", e.OrderID, err)
	}
	return string(payload), nil
}

// ExpandEvent returns the CloudEvent of a row of outbox_events. If encodeKept did not write the
// payload, ExpandEvent returns the payload as it is.
func ExpandEvent(orderID string, payload []byte) []byte {
	event, _ := expandEvent(orderID, payload)
	return event
}

// expandEvent is ExpandEvent, and also returns the traceparent of the payload, "" if it has none.
func expandEvent(orderID string, payload []byte) (event []byte, traceparent string) {
	var k keptEvent
	if err := json.Unmarshal(payload, &k); err != nil || k.Due == nil {
		return payload, k.Traceparent
	}
	e := orderclose.OrderClosed{
		Type: k.Type, OrderID: orderID, Category: k.Category, Due: *k.Due, ClosedAt: k.ClosedAt,
		Path: k.Path, Attempts: k.Attempts, Version: k.Version, Columns: k.Columns,
	}
	for _, sku := range slices.Sorted(maps.Keys(k.Release)) {
		e.Release = append(e.Release, orderclose.Release{SKU: sku, Quantity: k.Release[sku], Key: wire.ReleaseKey(orderID, sku, kindClose)})
	}
	whole, err := e.Encode()
	if err != nil {
		return payload, k.Traceparent // a time outside the years of RFC 3339, which encodeKept refuses too
	}
	return whole, k.Traceparent
}
