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

// cloudEvent is what an event says, as far as anybody outside may rely on it.
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

// keptEvent is how a row of outbox_events keeps an event until it is published; the
// rest of it is worked out.
type keptEvent struct {
	Type     string           `json:"event"`
	Due      time.Time        `json:"due_at"`
	ClosedAt time.Time        `json:"closed_at"`
	Path     string           `json:"path"`
	Release  map[string]int64 `json:"release"` // by SKU
}

// whole is the event that a row stands for, with keys of releases that nobody else has.
func (k keptEvent) whole(order string) cloudEvent {
	kind := cmp.Or(k.Type, "order.closed")
	c := cloudEvent{Version: "1.0", ID: kind + "/" + order, Source: "/", Type: kind, Subject: order, Time: k.ClosedAt}
	c.Data.OrderID, c.Data.Due, c.Data.ClosedAt, c.Data.Path = order, k.Due, k.ClosedAt, k.Path
	for sku, quantity := range k.Release {
		c.Data.Release = append(c.Data.Release, released{sku, quantity, fmt.Sprintf("%q %q", order, sku)})
	}
	return c
}

// judgeEvents: of each close, and of nothing else, there is an event, in its topic
// or still in the outbox, and all its copies have the same id.
func (v *Verdict) judgeEvents(db *tables, l *logs, e Expect) {
	if e.EventsTopic == "" {
		return
	}
	ids := map[string]map[string]bool{} // of events, by order
	keys := map[string]string{}         // of releases: whose
	take := func(where, key string, c cloudEvent, err error) {
		if err != nil || c.Version != "1.0" || c.ID == "" || c.Source == "" || c.Type != "order.closed" {
			v.blame("the event %s cannot be read: %v", where, err)
			return
		}
		id := c.Data.OrderID
		if key != id || c.Subject != id {
			v.blame("the event %s of order %s has the key %s and the subject %s", where, id, key, c.Subject)
		}
		if ids[id] == nil {
			ids[id] = map[string]bool{}
		}
		ids[id][c.ID] = true
		v.judgeEvent(where, c, db, keys)
	}
	for _, r := range l.records[e.EventsTopic] {
		where := fmt.Sprintf("at %s/%d/%d", e.EventsTopic, r.partition, r.offset)
		if r.mediaType != cloudEventType {
			v.blame("the event %s has the content-type %q", where, r.mediaType)
		}
		var c cloudEvent
		err := json.Unmarshal(r.value, &c)
		take(where, r.key, c, err)
	}
	v.Events = len(ids)
	for id, payloads := range db.outbox {
		for _, payload := range payloads {
			var k keptEvent
			err := json.Unmarshal(payload, &k)
			take("in the outbox", id, k.whole(id), err)
		}
	}
	v.judgeEventIDs(ids)
	var missing []string
	for id, r := range db.receipts {
		if len(ids[id]) == 0 && !l.dead[id] && !r.closedAt.Before(e.EventsDeleted) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		v.blame("%d closed orders have no event, such as %v", len(missing), some(missing))
	}
	if e.OutboxEmpty && len(db.outbox) > 0 {
		v.blame("%d orders' events are still in the outbox, such as %v", len(db.outbox), some(slices.Collect(maps.Keys(db.outbox))))
	}
}

// judgeEvent: it says what the order's receipt and lines say.
func (v *Verdict) judgeEvent(where string, c cloudEvent, db *tables, keys map[string]string) {
	id := c.Data.OrderID
	r, ok := db.receipts[id]
	if !ok {
		v.blame("the event %s tells that %s was closed, which it was not", where, id)
		return
	}
	released := map[string]int64{}
	for _, back := range c.Data.Release {
		released[back.SKU] += back.Quantity
		if who := id + " " + back.SKU; back.Key == "" || keys[back.Key] != "" && keys[back.Key] != who {
			v.blame("the releases of %s and %s have one key, %q", who, keys[back.Key], back.Key)
		} else {
			keys[back.Key] = who
		}
	}
	if !c.Data.Due.Equal(r.due) || !c.Data.ClosedAt.Equal(r.closedAt) || !c.Time.Equal(r.closedAt) || c.Data.Path != r.path || !maps.Equal(released, db.items[id]) {
		v.blame("the event %s of %s does not agree with its order: %+v, %+v, it held %v", where, id, c, r, db.items[id])
	}
}

// judgeEventIDs: one for each order, and no two orders have one.
func (v *Verdict) judgeEventIDs(ids map[string]map[string]bool) {
	orders := map[string]string{} // by event id
	for order, all := range ids {
		if len(all) > 1 {
			v.blame("the event of %s came under the ids %v", order, slices.Sorted(maps.Keys(all)))
		}
		for id := range all {
			if other, taken := orders[id]; taken {
				v.blame("%s and %s have one event id, %s", order, other, id)
			}
			orders[id] = order
		}
	}
}
