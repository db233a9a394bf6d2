package simulation

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// add creates an order and schedules it in the same transaction.
func (r *rig) add(id string, delay time.Duration) orderclose.Order {
	r.t.Helper()
	now := time.Now().Truncate(time.Millisecond)
	o := orderclose.Order{ID: id, Category: "virtual", CreatedAt: now, Due: now.Add(delay)}
	must.Do(r.t, r.shop.Orders.Checkout(r.t.Context(), func(tx *shopdb.Tx) error {
		return errors.Join(tx.CreateOrder(o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 2}}), r.shop.Outbox.Add(r.t.Context(), orderclose.SQL(tx.SQL()), o))
	}))
	return o
}

// late returns how late each closed order was, and its path.
func (r *rig) late() map[string]string {
	r.t.Helper()
	rows := must.Get(r.world.DB().QueryContext(r.t.Context(), "SELECT order_id, path, lateness_ms FROM receipts"))(r.t)
	defer rows.Close()
	late := map[string]string{}
	for rows.Next() {
		var id, path string
		var ms int64
		must.Do(r.t, rows.Scan(&id, &path, &ms))
		late[id] = fmt.Sprint(path, " ", time.Duration(ms)*time.Millisecond)
	}
	return late
}

func (r *rig) unscheduled() int {
	r.t.Helper()
	b := must.Get(r.db.Backlog(r.t.Context(), wire.ScheduleOutbox))(r.t)
	return b.Rows
}

// TestSimulation_WithKafkaDownSchedulesWait: the dispatcher chooses the bucket when Kafka is
// back. Orders that are due by then close at once, all others on time, and without a sweep.
func TestSimulation_WithKafkaDownSchedulesWait(t *testing.T) {
	ring.NotShort(t)
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.useOutbox()
		r.start(pipeline.Outbox)
		time.Sleep(10 * time.Second)
		down := r.world.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		r.add("overdue", 10*time.Minute)
		r.add("soon", 23*time.Minute)
		r.add("later", 27*time.Minute)
		r.add("paid", 10*time.Minute)
		must.Get(r.shop.Orders.Pay(ctx, "paid", "p"))(t)
		time.Sleep(15 * time.Minute)
		b, err := r.db.Backlog(ctx, wire.ScheduleOutbox)
		expect.That(t, err == nil && b.Rows == 4 && b.Oldest == 15*time.Minute, "backlog %+v, %v; want 4 rows, 15 minutes old", b, err)
		before := r.appends()
		down.Remove()
		time.Sleep(30 * time.Second)
		shorter := r.inTopic("delay_10s") + r.inTopic("delay_1m") + r.inTopic("delay_5m") // a shorter bucket may accept records first
		if diff := cmp.Diff(map[string]int64{"delay_30m": 0, "delay_5m or shorter": 2, "close": 2},
			map[string]int64{"delay_30m": r.inTopic("delay_30m"), "delay_5m or shorter": shorter, "close": r.inTopic(r.cfg.Topics.Close)}); diff != "" ||
			r.appends()-before < 4 {
			t.Errorf("records (-want +got):\n%s", diff)
		}
		expect.Equal(t, r.unscheduled(), 0, "rows that are left")
		r.start(pipeline.Relay)
		r.start(pipeline.Closer)
		time.Sleep(13 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 3 && v.Paid == 1, "closed by path %v, %d paid", v.ByPath, v.Paid)
		late := r.late()
		delete(late, "overdue")
		expect.Same(t, late, map[string]string{"soon": "pipeline 0s", "later": "pipeline 0s"}, "late by")
	})
}

// TestSimulation_AnEarlierDeadlineIsScheduledLikeAnOrder, in the transaction that moves the deadline.
func TestSimulation_AnEarlierDeadlineIsScheduledLikeAnOrder(t *testing.T) {
	ring.NotShort(t)
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.useOutbox()
		for _, role := range []pipeline.Role{pipeline.Relay, pipeline.Closer, pipeline.Outbox} {
			r.start(role)
		}
		time.Sleep(10 * time.Second)
		o := r.add("moved", 15*time.Minute)
		r.add("stays", 15*time.Minute)
		time.Sleep(time.Minute)
		o.Due = time.Now().Truncate(time.Millisecond).Add(5 * time.Minute)
		must.Do(t, r.shop.Orders.Checkout(ctx, func(tx *shopdb.Tx) error {
			_, err := tx.SQL().ExecContext(ctx, "UPDATE orders SET expire_at = ? WHERE id = ? AND status = 0", o.Due.UnixMilli(), o.ID)
			return errors.Join(err, r.shop.Outbox.Add(ctx, orderclose.SQL(tx.SQL()), o))
		}))
		time.Sleep(6 * time.Minute)
		expect.Same(t, r.late(), map[string]string{"moved": "pipeline 0s"}, "closed")
		time.Sleep(10 * time.Minute)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 2 || len(r.deadLetters(ctx)) > 0 {
			t.Errorf("closed by path %v, dead letters %v", v.ByPath, r.deadLetters(ctx))
		}
	})
}

// TestSimulation_AnUnreadableRowIsADeadLetter with its cause, and delays no other row.
func TestSimulation_AnUnreadableRowIsADeadLetter(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.deadCauses = []string{"bad_value", "key_mismatch", "due_too_far"}
		r.useOutbox()
		r.start(pipeline.Outbox)
		time.Sleep(time.Second)
		for id, payload := range map[string]string{
			"a": "?", "b": `{"order_id":"c","created_at":"2000-01-01T00:00:00Z","due_at":"2000-01-01T00:00:00Z"}`,
			"d": `{"order_id":"d","created_at":"2000-01-01T00:00:00Z","due_at":"9999-01-01T00:00:00Z"}`,
		} {
			must.Get(r.world.DB().ExecContext(ctx, "INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES (?, ?, 0)", id, payload))(t)
		}
		r.add("good", 5*time.Minute)
		time.Sleep(10 * time.Second)
		expect.That(t, r.inTopic("delay_5m") == 1 && r.unscheduled() == 0, "%d published, %d rows left", r.inTopic("delay_5m"), r.unscheduled())
		expect.Same(t, r.deadLetters(ctx), map[string]int{"bad_value": 1, "key_mismatch": 1, "due_too_far": 1}, "dead letters")
		r.check(time.Now())
	})
}
