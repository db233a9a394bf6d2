package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"orderclose"
)

// keptEvent is an event as outbox_events keeps it until it is dispatched: without
// what the row's order_id and the rest of it tell. That is a third of the CloudEvent.
// Each close writes one, and the database writes its bytes three times.
type keptEvent struct {
	Type     string          `json:"event"` // says that it is one
	Category string          `json:"category,omitempty"`
	Due      time.Time       `json:"due_at"`
	ClosedAt time.Time       `json:"closed_at"`
	Path     orderclose.Path `json:"path"`
	Attempts int             `json:"attempts,omitempty"`
	Version  int64           `json:"version,omitempty"`
	Release  []keptRelease   `json:"release,omitempty"`
}

// keptRelease is a release without its key.
type keptRelease struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// keep returns the event in the form of the outbox. Its releases are a close's.
func keep(e orderclose.OrderClosed) (string, error) {
	k := keptEvent{cmp.Or(e.Type, orderclose.EventOrderClosed), e.Category, e.Due, e.ClosedAt, e.Path, e.Attempts, e.Version, nil}
	for _, r := range e.Release {
		k.Release = append(k.Release, keptRelease{r.SKU, r.Quantity})
	}
	payload, err := json.Marshal(k)
	if err != nil {
		return "", fmt.Errorf("event of order %q: %w", e.OrderID, err)
	}
	return string(payload), nil
}

// WholeEvent returns the CloudEvent that a row of outbox_events stands for. Anything
// but what this package keeps there is returned as it is.
func WholeEvent(orderID string, payload []byte) []byte {
	var k keptEvent
	if err := json.Unmarshal(payload, &k); err != nil || k.Type == "" {
		return payload
	}
	e := orderclose.OrderClosed{
		Type: k.Type, OrderID: orderID, Category: k.Category, Due: k.Due, ClosedAt: k.ClosedAt,
		Path: k.Path, Attempts: k.Attempts, Version: k.Version,
	}
	for _, r := range k.Release {
		e.Release = append(e.Release, orderclose.Release{SKU: r.SKU, Quantity: r.Quantity, Key: orderclose.ReleaseKey(orderID, r.SKU, string(kindClose))})
	}
	whole, err := e.Encode()
	if err != nil {
		return payload // a time out of RFC 3339's years, which was kept by the same rule
	}
	return whole
}
