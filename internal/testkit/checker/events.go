package checker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// cloudEventType is the content-type header of an event in structured mode.
const cloudEventType = "application/cloudevents+json; charset=UTF-8"

// cloudEvent is an event, with the fields that consumers may rely on.
type cloudEvent struct {
	Version string    `json:"specversion"`
	ID      string    `json:"id"`
	Source  string    `json:"source"`
	Type    string    `json:"type"`
	Subject string    `json:"subject"`
	Time    time.Time `json:"time"`
	Data    struct {
		OrderID  string     `json:"order_id"`
		Due      time.Time  `json:"due_at"`
		ClosedAt time.Time  `json:"closed_at"`
		Path     string     `json:"path"`
		Release  []released `json:"release"`
	} `json:"data"`
}

type released struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Key      string `json:"key"`
}

// storedEvent is an event as a row of outbox_events stores it until it is published. The
// other fields of the event are derived.
type storedEvent struct {
	Type     string           `json:"event"`
	Due      time.Time        `json:"due_at"`
	ClosedAt time.Time        `json:"closed_at"`
	Path     string           `json:"path"`
	Release  map[string]int64 `json:"release"` // by SKU
}

// cloudEvent returns the event of a row, with release keys that no other release has.
func (k storedEvent) cloudEvent(order string) cloudEvent {
	kind := cmp.Or(k.Type, "order.closed")
	c := cloudEvent{Version: "1.0", ID: kind + "/" + order, Source: "/", Type: kind, Subject: order, Time: k.ClosedAt}
	c.Data.OrderID, c.Data.Due, c.Data.ClosedAt, c.Data.Path = order, k.Due, k.ClosedAt, k.Path
	for sku, quantity := range k.Release {
		c.Data.Release = append(c.Data.Release, released{sku, quantity, fmt.Sprintf("%q %q", order, sku)})
	}
	return c
}

// checkEvents: each close has an event, in the topic or in the outbox, and nothing else has
// one. All copies of an event have the same id.
func (v *Verdict) checkEvents(db *tables, l *logs, e Expect) {
	if e.EventsTopic == "" {
		return
	}
	ids := map[string]map[string]bool{} // by order: the ids of its events
	keys := map[string]string{}         // by release key: order and SKU
	check := func(where, key string, c cloudEvent, err error) {
		if err != nil || c.Version != "1.0" || c.ID == "" || c.Source == "" || c.Type != "order.closed" {
			v.violation("the event %s cannot be read: %v", where, err)
			return
		}
		id := c.Data.OrderID
		if key != id || c.Subject != id {
			v.violation("the event %s of order %s has the key %s and the subject %s", where, id, key, c.Subject)
		}
		if ids[id] == nil {
			ids[id] = map[string]bool{}
		}
		ids[id][c.ID] = true
		v.checkEvent(where, c, db, keys)
	}
	for _, r := range l.records[e.EventsTopic] {
		where := fmt.Sprintf("at %s/%d/%d", e.EventsTopic, r.partition, r.offset)
		if r.mediaType != cloudEventType {
			v.violation("the event %s has the content-type %q", where, r.mediaType)
		}
		var c cloudEvent
		err := json.Unmarshal(r.value, &c)
		check(where, r.key, c, err)
	}
	v.Events = len(ids)
	for id, payloads := range db.outbox {
		for _, payload := range payloads {
			var k storedEvent
			err := json.Unmarshal(payload, &k)
			check("in the outbox", id, k.cloudEvent(id), err)
		}
	}
	v.checkEventIDs(ids)
	var missing []string
	for id, r := range db.receipts {
		if len(ids[id]) == 0 && !l.dead[id] && !r.closedAt.Before(e.EventsDeleted) {
			missing = append(missing, id)
		}
	}
	v.several(missing, "%d closed orders have no event, such as %v")
	if e.OutboxEmpty {
		v.several(slices.Collect(maps.Keys(db.outbox)), "%d orders' events are still in the outbox, such as %v")
	}
}

// checkEvent: an event agrees with the receipt and the lines of its order.
func (v *Verdict) checkEvent(where string, c cloudEvent, db *tables, keys map[string]string) {
	id := c.Data.OrderID
	r, ok := db.receipts[id]
	if !ok {
		v.violation("the event %s says that %s was closed, which it was not", where, id)
		return
	}
	released := map[string]int64{}
	for _, back := range c.Data.Release {
		released[back.SKU] += back.Quantity
		if owner := id + " " + back.SKU; back.Key == "" || keys[back.Key] != "" && keys[back.Key] != owner {
			v.violation("the releases of %s and %s have the same key, %q", owner, keys[back.Key], back.Key)
		} else {
			keys[back.Key] = owner
		}
	}
	if !c.Data.Due.Equal(r.due) || !c.Data.ClosedAt.Equal(r.closedAt) || !c.Time.Equal(r.closedAt) || c.Data.Path != r.path || !maps.Equal(released, db.items[id]) {
		v.violation("the event %s of %s does not agree with its order: %+v, %+v, it held %v", where, id, c, r, db.items[id])
	}
}

// checkEventIDs: each order has one event id, and no two orders have the same.
func (v *Verdict) checkEventIDs(ids map[string]map[string]bool) {
	orders := map[string]string{} // by event id
	for order, all := range ids {
		if len(all) > 1 {
			v.violation("the event of %s has the different ids %v", order, slices.Sorted(maps.Keys(all)))
		}
		for id := range all {
			if other, taken := orders[id]; taken {
				v.violation("%s and %s have the same event id, %s", order, other, id)
			}
			orders[id] = order
		}
	}
}
