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
		Deadline time.Time  `json:"deadline_at"` // of a reminder
		Version  int64      `json:"version"`
		PaidAt   time.Time  `json:"paid_at"`    // of an order that was marked as paid
		Payment  string     `json:"payment_id"` // of a late payment
	} `json:"data"`
}

// reminder is the type of the event that reminds of an unpaid order.
const reminder = "order.reminder"

type released struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Key      string `json:"key"`
}

// storedEvent is an event as a row of outbox_events stores it until it is published. The other fields of the event are derived.
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

// paidLate is the type of the event of a late payment, whose row of outbox_events has the whole event.
const paidLate = "order.paid_late"

// paidAsked is the type of the event of an order that was marked as paid because the provider said so.
const paidAsked = "order.paid"

// checkEvents: each close, each order that the pipeline marked as paid, and each late payment has an event, in the topic or in the outbox, and nothing else has
// one. All copies of an event have the same id.
func (v *Verdict) checkEvents(db *tables, l *logs, e Expect) {
	if e.EventsTopic == "" {
		return
	}
	ids := map[string]map[string]bool{} // by order: the ids of its events
	keys := map[string]string{}         // by release key: order and SKU
	reminded := map[string]cloudEvent{} // by event id
	late := map[payment]string{}        // the id of its event
	asked := map[string]string{}        // by order: the id of its event
	check := func(where, key string, c cloudEvent, err error) {
		if err == nil && c.Type == reminder {
			v.checkReminder(where, key, c, db, reminded)
			return
		}
		if err != nil || c.Version != "1.0" || c.ID == "" || c.Source == "" || c.Type != "order.closed" && c.Type != paidLate && c.Type != paidAsked {
			v.violation("the event %s cannot be read: %v", where, err)
			return
		}
		id := c.Data.OrderID
		if key != id || c.Subject != id {
			v.violation("the event %s of order %s has the key %s and the subject %s", where, id, key, c.Subject)
		}
		if p := (payment{id, c.Data.Payment}); c.Type == paidLate {
			// An event without an id may be followed by one with the id, in the same row.
			if !db.late[p] && (p.id != "" || !db.hasLate[id]) || late[p] != "" && late[p] != c.ID {
				v.violation("the event %s has the id %s, and says that the payment %v is late; its other events have the id %q", where, c.ID, p, late[p])
			}
			late[p] = c.ID
			return
		}
		if c.Type == paidAsked {
			if o := db.orders[id]; !o.isPaid() || !c.Time.Equal(o.paidAt) || !c.Data.PaidAt.Equal(o.paidAt) || c.Data.Version < 2 ||
				asked[id] != "" && asked[id] != c.ID {
				v.violation("the event %s has the id %s, and says that order %s was marked as paid at %v; its other events have the id %q, and the order is %+v",
					where, c.ID, id, c.Data.PaidAt, asked[id], o)
			}
			asked[id] = c.ID
			return
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
			event := k.cloudEvent(id)
			if whole := (cloudEvent{}); json.Unmarshal(payload, &whole) == nil && whole.Version != "" { // not of a close
				event = whole
			}
			check("in the outbox", id, event, err)
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
	silent := []string{}
	for p := range db.late {
		if late[p] == "" && !l.dead[p.order] && e.EventsDeleted.IsZero() {
			silent = append(silent, p.order)
		}
	}
	v.several(silent, "%d late payments have no event, such as those of %v")
	unknown := []string{}
	for id, o := range db.orders {
		if o.isPaid() && o.payment == "" && asked[id] == "" && !l.dead[id] && !o.paidAt.Before(e.EventsDeleted) {
			unknown = append(unknown, id)
		}
	}
	v.several(unknown, "%d orders were marked as paid without a payment and without an event, such as %v")
	if e.OutboxEmpty {
		v.several(slices.Collect(maps.Keys(db.outbox)), "%d orders' events are still in the outbox, such as %v")
	}
}

// isPaid reports whether the order was paid, and possibly shipped since.
func (o order) isPaid() bool { return o.status == paid || o.status == shipped || o.status == confirmed }

// checkReminder: an order is reminded before its deadline, while nobody has paid, closed or cancelled it, and all
// copies of the event are the same. reminded has the other reminders by event id.
func (v *Verdict) checkReminder(where, key string, c cloudEvent, db *tables, reminded map[string]cloudEvent) {
	id := c.Data.OrderID
	before, again := reminded[c.ID]
	switch _, known := db.orders[id]; {
	case !known || key != id || c.Subject != id || c.Version != "1.0" || c.ID == "":
		v.violation("the reminder %s of order %s has the key %s, the id %q and the subject %s", where, id, key, c.ID, c.Subject)
	case c.Data.Version != 1:
		v.violation("the reminder %s of order %s was written after a payment, a close or a cancellation: version %d", where, id, c.Data.Version)
	case !c.Time.Before(c.Data.Deadline) || c.Data.Deadline.After(c.Data.Due):
		v.violation("the reminder %s of order %s is of %v, the deadline is %v and the due time %v", where, id, c.Time, c.Data.Deadline, c.Data.Due)
	case again && !c.Time.Equal(before.Time):
		v.violation("the reminder %s of order %s was written twice, at %v and %v", where, id, before.Time, c.Time)
	}
	if reminded[c.ID] = c; !again {
		v.Reminders++
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
	if !c.Data.Due.Equal(r.due) || !c.Data.ClosedAt.Equal(r.closedAt) || !c.Time.Equal(r.closedAt) || c.Data.Path != r.path ||
		!maps.Equal(released, db.items[id]) {
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
