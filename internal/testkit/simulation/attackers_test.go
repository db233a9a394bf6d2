package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// attackers plays the rows of the tables in SECURITY.md: a principal with that right on Kafka or in the database, and no other. Each attacks for five
// minutes, once a second, while orders are due. bound is how late an order may be closed at most.
var attackers = map[string]struct {
	attack func(ctx context.Context, r *rig, random *rand.Rand, orders []orderclose.Order)
	bound  func(r *rig) time.Duration
}{
	"write orders":       {forgeOrders, func(r *rig) time.Duration { return time.Minute }},
	"write dead letters": {forgeLetters, func(r *rig) time.Duration { return time.Minute }},
	"read with a group":  {skipRecords, func(*rig) time.Duration { return missBound }},
	"insert schedules":   {forgeSchedules, func(r *rig) time.Duration { return time.Minute }},
	"delete outbox rows": {stealRows, func(*rig) time.Duration { return missBound }},
}

// None of these principals closes an order early, one that is paid, or one twice, and none keeps an order open beyond the next sweep.
func TestSimulation_AnAttackerOnlyDelays(t *testing.T) {
	for right, a := range attackers {
		t.Run(right, func(t *testing.T) {
			simulate(t, testConfig(), func(ctx context.Context, r *rig) {
				r.startStable()
				r.useOutbox()
				random := rand.New(rand.NewPCG(1, 49))
				var orders []orderclose.Order
				for i := range 20 {
					orders = append(orders, r.order(fmt.Sprint("o", i), "virtual", true)) // due in five minutes
					time.Sleep(time.Second)
				}
				must.Get(r.shop.Orders.Pay(ctx, "o7", "p"))(t)
				for range 5 * 60 {
					a.attack(ctx, r, random, orders)
					time.Sleep(time.Second)
				}
				time.Sleep(missBound)
				expect.Equal(t, r.rows("SELECT COUNT(*) FROM receipts"), 19, "receipts of 20 orders, of which one is paid")
				expect.Equal(t, r.rows("SELECT COUNT(*) FROM receipts WHERE order_id = 'o7'"), 0, "closes of the paid order")
				expect.Equal(t, r.rows("SELECT COUNT(*) FROM receipts WHERE lateness_ms < 0"), 0, "early closes")
				expect.Equal(t, r.rows("SELECT COUNT(*) FROM receipts, json_each(returned)"), 19, "returns of stock")
				expect.Equal(t, r.rows(fmt.Sprintf("SELECT COUNT(*) FROM receipts WHERE lateness_ms > %d", a.bound(r).Milliseconds())), 0,
					"closes later than %v; the latest is %v ms late", a.bound(r), r.texts("SELECT CAST(MAX(lateness_ms) AS TEXT) FROM receipts"))
			})
		})
	}
}

// append appends a forged record. A broker refuses some.
func (r *rig) append(ctx context.Context, topic string, m wire.Message) {
	m.Appended = time.Time{}
	_ = r.kafka.Appender.Append(ctx, topic, m)
}

// forged returns one of the orders with another due time, category or id.
func forged(random *rand.Rand, orders []orderclose.Order) orderclose.Order {
	o := orders[random.IntN(len(orders))]
	o.Due = time.Now().Add([]time.Duration{-time.Hour, 0, time.Minute, 9 * time.Hour, 300 * 24 * time.Hour}[random.IntN(5)])
	o.Category = []string{o.Category, "physical", "x"}[random.IntN(3)]
	if random.IntN(4) == 0 {
		o.ID = "nobody's"
	}
	return o
}

// forgeOrders asks to close orders early, late, under other names and in garbage.
func forgeOrders(ctx context.Context, r *rig, random *rand.Rand, orders []orderclose.Order) {
	o := forged(random, orders)
	topics := []string{r.cfg.Topics.Close, r.cfg.Buckets[0].Topic, r.cfg.Buckets[2].Topic}
	m := must.Get(wire.Record{Order: o, Release: o.Due, Attempt: random.IntN(4)}.Encode())(r.t)
	if random.IntN(4) == 0 {
		m.Value = m.Value[:random.IntN(len(m.Value))]
	}
	r.append(ctx, topics[random.IntN(len(topics))], m)
}

// forgeLetters writes dead letters of orders and events.
func forgeLetters(ctx context.Context, r *rig, random *rand.Rand, orders []orderclose.Order) {
	o := orders[random.IntN(len(orders))]
	m := must.Get(wire.Record{Order: o, Release: o.Due}.Encode())(r.t)
	m.Topic = []string{r.cfg.Topics.Close, r.cfg.Topics.Events, "outbox_events", "nowhere"}[random.IntN(4)]
	r.append(ctx, r.cfg.Topics.DeadLetter, wire.DeadLetter(m, "closer", "failed", "forged"))
}

// skipRecords takes the partitions of a relay, and commits what nobody has forwarded. A member that is gone has done the same.
func skipRecords(ctx context.Context, r *rig, random *rand.Rand, _ []orderclose.Order) {
	if random.IntN(60) > 0 {
		return
	}
	r.disturbed = true
	r.stop(pipeline.Relay)
	b := r.cfg.Buckets[random.IntN(len(r.cfg.Buckets))]
	for p := range must.Get(r.kafka.Partitions(ctx, b.Topic))(r.t) {
		_, end, err := r.kafka.Bounds(ctx, b.Topic, p)
		must.Do(r.t, err)
		if p == 0 {
			r.commit(ctx, r.cfg.RelayGroup(b), b.Topic, end)
		}
	}
	r.start(pipeline.Relay)
}

// forgeSchedules writes rows of the outbox of schedules, as a checkout may.
func forgeSchedules(_ context.Context, r *rig, random *rand.Rand, orders []orderclose.Order) {
	o := forged(random, orders)
	payload := must.Get(wire.Record{Order: o}.SchedulePayload())(r.t)
	if random.IntN(4) == 0 {
		payload = payload[:random.IntN(len(payload))]
	}
	created := time.Now().AddDate([]int{-50, 0, 50}[random.IntN(3)], 0, 0).UnixMilli()
	r.exec("INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES (?, ?, ?)", []string{o.ID, "x", ""}[random.IntN(3)], string(payload), created)
}

// stealRows deletes and alters rows of both outboxes, as a dispatcher on PostgreSQL may.
func stealRows(_ context.Context, r *rig, random *rand.Rand, _ []orderclose.Order) {
	r.disturbed = true
	for _, table := range []string{"outbox_schedules", "outbox_events"} {
		r.exec("UPDATE "+table+" SET payload = ?, created_at = ?", []string{"", "{}", "null"}[random.IntN(3)], time.Now().AddDate(50, 0, 0).UnixMilli())
		r.exec("DELETE FROM " + table)
	}
}

// unplayed are the rights with which somebody does what they are for: nothing of orderclose bounds the harm.
var unplayed = []string{"write events", "pay orders", "close orders", "operate"}

// Each row of the tables has its attack.
func TestAttackers_PlayTheTableOfSecurityMd(t *testing.T) {
	text := must.Get(os.ReadFile("../../../SECURITY.md"))(t)
	rows := regexp.MustCompile(`(?m)^\| \*\*(.+?)\*\* \|`).FindAllStringSubmatch(string(text), -1)
	for _, row := range rows {
		_, played := attackers[row[1]]
		expect.That(t, played || slices.Contains(unplayed, row[1]), "nobody plays %q", row[1])
	}
	expect.Equal(t, len(rows), len(attackers)+len(unplayed), "rows of the tables")
}
