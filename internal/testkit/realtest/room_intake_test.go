package realtest

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// debezium returns the record of an order in the reference schema as Debezium writes it, without a schema: of an insert, or of an update of the status.
func debezium(o orderclose.Order, op string, before, after int) wire.Message {
	row := func(status int) string {
		return fmt.Sprintf(`{"id":%q,"category":%q,"status":%d,"created_at":%d,"expire_at":%d,"closed_at":null,"paid_at":null,"payment_id":null,"version":1}`,
			o.ID, o.Category, status, o.CreatedAt.UnixMilli(), o.Due.UnixMilli())
	}
	former := "null"
	if op == "u" {
		former = row(before)
	}
	return wire.Message{Key: fmt.Appendf(nil, `{"id":%q}`, o.ID), Value: fmt.Appendf(nil,
		`{"before":%s,"after":%s,"source":{"connector":"mysql","db":"shop","table":"orders"},"op":%q,"ts_ms":%d}`, former, row(after), op, time.Now().UnixMilli())}
}

func init() {
	placements["TestReal_KillingAnIntakeLeavesNoGap"] = placement{in: postgres, on: []database{mariadb, postgres}, alone: "kill -9 of the role intake"}
}

// Two intakes are killed at random moments. No sweep runs and nothing else schedules orders: each unpaid order
// that is closed at the end was scheduled by an intake.
func TestReal_KillingAnIntakeLeavesNoGap(t *testing.T) { eachDatabase(t, killingAnIntakeLeavesNoGap) }

func killingAnIntakeLeavesNoGap(t *testing.T, s environ.Servers) {
	r := newRig(t, s)
	topic := r.prefix + "shop.orders"
	r.configure("intake: {topic: " + topic + ", format: debezium}\n")
	must.Do(t, apply(t.Context(), r.kafka, []kafka.TopicSpec{{Name: topic, Partitions: 4, Replication: 1, Retention: time.Hour}}))
	t.Cleanup(func() { r.clean(func(ctx context.Context) error { return drop.Topics(ctx, r.kafka, topic) }) })
	r.start("relay", "closer", "intake-1", "intake-2")
	count := inRing(300, 600)
	put := func(m wire.Message) { r.append(topic, kafka.PartitionOf(m.Key, 4), m) }
	shop, orders := scenario.OrdersOf(r.store), []orderclose.Order{}
	for i := range count {
		if n := i / (count / 10); i%(count/10) == count/20 { // ten times
			part := fmt.Sprint("intake-", 1+n%2)
			r.signal(part, syscall.SIGKILL)
			r.start(part)
		}
		scenario.Pause(t.Context(), 10*time.Millisecond) // an intake begins to work between two kills
		now := time.Now().UTC().Truncate(time.Millisecond)
		o := orderclose.Order{ID: fmt.Sprintf("o-%05d", i), Category: "virtual", CreatedAt: now, Due: now.Add(4 * time.Second)}
		must.Do(t, shop.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(i % skus), Quantity: 1}}))
		put(debezium(o, "c", 0, 0))
		if orders = append(orders, o); i%3 == 0 {
			must.Get(shop.Pay(t.Context(), o.ID, "p"))(t)
			put(debezium(o, "u", 0, 1))
		}
	}
	r.until("all unpaid orders are closed", func() bool { return r.count("SELECT COUNT(*) FROM orders WHERE status = 2") == count*2/3 })
	expect.Equal(t, r.count("SELECT COUNT(*) FROM orders WHERE status = 1"), count/3, "orders are paid")
	if n := r.count("SELECT COUNT(*) FROM receipts WHERE path <> 'pipeline' OR closed_at < due"); n != 0 {
		t.Errorf("%d orders were closed too early, or not by the pipeline", n)
	}
	// The snapshot of the table, read once more: nothing is unpaid any more.
	before := r.sent(r.cfg.Topics.Close)
	for i, o := range orders {
		status := 2
		if i%3 == 0 {
			status = 1
		}
		put(debezium(o, "r", 0, status))
	}
	late := orderclose.Order{ID: "o-99999", CreatedAt: time.Now(), Due: time.Now().Add(-time.Second)} // no order has this id
	put(debezium(late, "r", 0, 0))
	r.eventually(func() error {
		lag, err := scenario.WaitingIn(t.Context(), r.kafka, r.cfg.Group("intake", topic), topic)
		if err == nil && lag > 0 {
			err = fmt.Errorf("%d rows of the snapshot are not read", lag)
		}
		return err
	})
	expect.Equal(t, r.sent(r.cfg.Topics.Close)-before, 1, "rows of a snapshot with one unpaid order were scheduled")
}
