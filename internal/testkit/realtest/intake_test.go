package realtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// debezium returns the record of an order in the reference schema as Debezium writes it, without a schema: of an
// insert, or of an update of the status.
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

// Two intakes are killed at random moments. No sweep runs and nothing else schedules orders: each unpaid order
// that is closed at the end was scheduled by an intake.
func TestReal_KillingAnIntakeLeavesNoGap(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	topic := r.prefix + "shop.orders"
	r.configure("intake: {topic: " + topic + ", format: debezium}\n")
	_, _, err := r.kafka.Apply(t.Context(), []kafka.TopicSpec{{Name: topic, Partitions: 4, Replication: 1, Retention: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.clean(func(ctx context.Context) error { return r.kafka.DeleteTopics(ctx, topic) }) })
	r.start("relay", "closer", "intake-1", "intake-2")
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		random := rand.New(rand.NewPCG(31, 31))
		for i := range 10 {
			part := fmt.Sprint("intake-", 1+i%2)
			<-time.After(time.Duration(700+random.IntN(600)) * time.Millisecond)
			r.signal(part, syscall.SIGKILL)
			r.start(part)
		}
	}()
	producer := kafka.NewCoalescer(r.kafka)
	defer producer.Close()
	put := func(m wire.Message) {
		if err := producer.Append(t.Context(), topic, m); err != nil {
			t.Fatal(err)
		}
	}
	shop, orders := scenario.OrdersOf(r.store), []orderclose.Order{}
	for i := range 600 {
		now := time.Now().UTC().Truncate(time.Millisecond)
		o := orderclose.Order{ID: fmt.Sprintf("o-%05d", i), Category: "virtual", CreatedAt: now, Due: now.Add(4 * time.Second)}
		if err := shop.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(i % skus), Quantity: 1}}); err != nil {
			t.Fatal(err)
		}
		put(debezium(o, "c", 0, 0))
		if orders = append(orders, o); i%3 == 0 {
			if _, err := shop.Pay(t.Context(), o.ID, "p"); err != nil {
				t.Fatal(err)
			}
			put(debezium(o, "u", 0, 1))
		}
	}
	<-killed
	count := func(query string) (n int) {
		if err := r.store.DB().QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	r.until("all unpaid orders are closed", func() bool { return count("SELECT COUNT(*) FROM orders WHERE status = 2") == 400 })
	if n := count("SELECT COUNT(*) FROM orders WHERE status = 1"); n != 200 {
		t.Errorf("%d orders are paid", n)
	}
	if n := count("SELECT COUNT(*) FROM receipts WHERE path <> 'pipeline' OR closed_at < due"); n != 0 {
		t.Errorf("%d orders were closed too early, or not by the pipeline", n)
	}
	records := func() (n int64) {
		for _, end := range r.ends(r.cfg.Topics.Close) {
			n += end
		}
		return n
	}
	// The snapshot of the table, read once more: nothing is unpaid any more.
	before := records()
	for i, o := range orders {
		status := 2
		if i%3 == 0 {
			status = 1
		}
		put(debezium(o, "r", 0, status))
	}
	late := orderclose.Order{ID: "o-99999", CreatedAt: time.Now(), Due: time.Now().Add(-time.Second)} // no order has this id
	put(debezium(late, "r", 0, 0))
	r.until("the snapshot is read", func() bool { return records() > before })
	<-time.After(3 * time.Second) // other partitions may be read later
	if n := records() - before; n != 1 {
		t.Errorf("%d rows of a snapshot with one unpaid order were scheduled", n)
	}
}
