package realtest

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// exec changes the database directly, as an operator does with other tools.
func (r *rig) exec(query string, args ...any) {
	r.t.Helper()
	must.Get(r.store.DB().ExecContext(r.t.Context(), query, args...))(r.t)
}

// insert creates orders with ids that begin with prefix and a dash, and a line each. It reserves no stock.
func (r *rig) insert(prefix, category string, orders int, due func(i int) time.Time, sku func(i int) string) {
	r.t.Helper()
	const chunk, layout = 1000, "2006-01-02 15:04:05.000"
	for first := 0; first < orders; first += chunk {
		var rows, lines strings.Builder
		for i := first; i < min(first+chunk, orders); i++ {
			at := due(i).UTC()
			fmt.Fprintf(&rows, ",('%s-%d','%s',0,'%s','%s',1)", prefix, i, category, at.Add(-time.Hour).Format(layout), at.Format(layout))
			fmt.Fprintf(&lines, ",('%s-%d',1,'%s',1)", prefix, i, sku(i))
		}
		r.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES " + rows.String()[1:])
		r.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES " + lines.String()[1:])
	}
}

// passedOver creates orders that were due a minute ago, each with a line, whose records a closer has committed in the close topic without closing them.
func (r *rig) passedOver(orders int) {
	r.t.Helper()
	chunk, due := min(orders, 1000), time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	r.insert("replayed", "", orders, func(int) time.Time { return due }, func(i int) string { return scenario.SKU(i % skus) })
	r.exec("UPDATE stock SET available = available - ?, reserved = reserved + ?", orders/skus, orders/skus)
	for first := 0; first < orders; first += chunk {
		messages := make([]wire.Message, 0, chunk)
		for i := first; i < first+chunk; i++ {
			o := orderclose.Order{ID: fmt.Sprint("replayed-", i), CreatedAt: due.Add(-time.Hour), Due: due}
			messages = append(messages, must.Get(wire.Record{Order: o, Release: due}.Encode())(r.t))
		}
		must.Get(r.kafka.Append(r.t.Context(), r.cfg.Topics.Close, first/chunk%r.cfg.Partitions, messages))(r.t)
	}
	for p := range r.cfg.Partitions {
		_, end, err := r.kafka.Bounds(r.t.Context(), r.cfg.Topics.Close, p)
		must.Do(r.t, errors.Join(err, r.kafka.SetPosition(r.t.Context(), r.cfg.CloserGroup(), r.cfg.Topics.Close, p, end)))
	}
}

// A closer of a bad version has passed over orders, and on-call replays the window as the runbook says. Orders with a delay of two seconds
// are created and close meanwhile, 200 a second. Their lateness is logged but not checked, because it depends on the machine.
func TestReal_AReplayClosesWhatWasPassedOverBesideFreshOrders(t *testing.T) {
	eachDatabase(t, replayBesideFreshOrders)
}

func replayBesideFreshOrders(t *testing.T, servers config.Servers) {
	r := newRig(t, servers)
	const replays, fresh = 20_000, 4000
	begin := time.Now()
	r.passedOver(replays)
	window := []string{"replay", "--from", begin.UTC().Format(time.RFC3339Nano), "--to", time.Now().UTC().Format(time.RFC3339Nano)}
	r.start("relay", "closer")
	expect.That(t, strings.Contains(r.must(window...), "--yes"), "the plan names no command that carries it out")
	replayed := make(chan string, 1)
	go func() {
		out, code := r.cli(append(window, "--yes")...)
		replayed <- fmt.Sprintf("%d %s", code, out)
	}()
	for i := range fresh {
		o := r.shop.Producer.Order(fmt.Sprint("fresh-", i), time.Now(), "flash-sale")
		must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(i % skus), Quantity: 1}}))
		must.Do(t, r.shop.Publish(t.Context(), o))
		scenario.Pause(t.Context(), 5*time.Millisecond-time.Millisecond)
	}
	out := <-replayed
	expect.That(t, strings.HasPrefix(out, "0 "), "replay exits with %s", out)
	r.settle()
	r.caughtUp()
	r.check()
	for _, share := range []int{50, 99, 100} {
		late := r.count("SELECT lateness_ms FROM receipts WHERE order_id LIKE 'fresh-%' ORDER BY lateness_ms LIMIT 1 OFFSET " + fmt.Sprint((fresh-1)*share/100))
		t.Logf("%d %% of the fresh orders were at most %d ms late", share, late)
	}
	expect.Equal(t, r.count("SELECT COUNT(*) FROM receipts WHERE order_id LIKE 'replayed-%'"), replays, "orders that the replay has closed")
}

// Due times move later; earlier with another record; earlier without one; and to never. Those of many orders move by the statement of the runbook.
func TestReal_DeadlinesMoveByAnUpdate(t *testing.T) { eachDatabase(t, deadlinesMoveByAnUpdate) }

func deadlinesMoveByAnUpdate(t *testing.T, servers config.Servers) {
	r := newRig(t, servers)
	r.disturbed = true // the sweep closes an order that was published
	r.start("relay", "closer", "compensator")
	r.firstStart()
	r.signal("compensator", syscall.SIGTERM) // on a busy machine, a sweep might close an order before the pipeline
	order := func(id, category string) orderclose.Order {
		o := r.shop.Producer.Order(id, time.Now(), category)
		must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 1}}))
		must.Do(t, r.shop.Publish(t.Context(), o))
		return o
	}
	move := func(o orderclose.Order, by time.Duration) orderclose.Order {
		o.Due = o.Due.Add(by)
		r.exec("UPDATE orders SET expire_at = ? WHERE id = ? AND status = 0", orderclose.CeilMilli(o.Due).UTC(), o.ID)
		return o
	}
	move(order("later", "flash-sale"), 13*time.Second) // 2 s; longer than a closer would keep it in memory
	sooner := move(order("earlier", "physical"), -5*time.Second)
	must.Do(t, r.shop.Publish(t.Context(), sooner))
	far := r.shop.Producer.Order("far", time.Now(), "physical")
	far.Due = far.Due.Add(time.Hour)
	must.Do(t, r.shop.Orders.CreateOrder(t.Context(), far, nil))
	must.Do(t, r.shop.Publish(t.Context(), far))
	move(far, -time.Hour)
	answer, err := r.shop.Orders.Cancel(t.Context(), order("cancelled", "physical").ID)
	must.That(t, err == nil && answer == shopdb.AnswerCancelled, "%v %v", answer, err)
	r.eventually(func() error { return atLeast("orders closed by the pipeline", r.closed(), 2) })
	const many = 1200
	r.moveByTheRunbook(many)
	r.start("compensator")
	r.settle()
	v := r.check()
	expect.That(t, v.Closed() == 3+many && v.Cancelled == 1, "closed %v, %d cancelled", v.ByPath, v.Cancelled)
	expect.Equal(t, r.count("SELECT COUNT(*) FROM receipts AS r JOIN orders AS o ON o.id = r.order_id WHERE r.due <> o.expire_at"), 0,
		"orders that were closed as due at another time than the one of their row")
	for id, want := range map[string]string{"later": "pipeline", "earlier": "pipeline", "far": "sweep"} {
		got := strings.Join(r.texts("SELECT path FROM receipts WHERE order_id = ?", id), " ")
		expect.That(t, got == want, "order %s was closed by %q; want the %s", id, got, want)
	}
}

// moveByTheRunbook creates orders whose delay is an hour, and whose due times are spread over ten seconds. While closers close them, it makes the
// delay 20 seconds longer by the statement of the runbook, as it stands there but for its values.
func (r *rig) moveByTheRunbook(orders int) {
	r.t.Helper()
	const category, longer = "virtual", 20 * time.Second
	first := time.Now().Add(3 * time.Second).UTC().Truncate(time.Millisecond)
	due := func(i int) time.Time {
		return first.Add(time.Duration(i) * 10 * time.Second / time.Duration(orders)).Truncate(time.Millisecond)
	}
	r.insert("many", category, orders, due, func(i int) string { return scenario.SKU(i % skus) })
	r.exec("UPDATE stock SET available = available - ?, reserved = reserved + ?", orders/skus, orders/skus)
	messages := make([][]wire.Message, r.cfg.Partitions)
	for i := range orders {
		o := orderclose.Order{ID: fmt.Sprint("many-", i), Category: category, CreatedAt: due(i).Add(-time.Hour), Due: due(i)}
		p := i % len(messages)
		messages[p] = append(messages[p], must.Get(wire.Record{Order: o, Release: due(i)}.Encode())(r.t))
	}
	for p := range messages {
		must.Get(r.kafka.Append(r.t.Context(), r.cfg.Topics.Close, p, messages[p]))(r.t)
	}

	const layout = "2006-01-02 15:04:05"
	created, end := first.Add(-time.Hour), first.Add(10*time.Second)
	section, _ := runbook.At("the-delay-of-a-category-was-wrong")
	language, delay := "sql", [2]string{"30 MINUTE", "3620 SECOND"}
	if r.store.Dialect() == store.Postgres {
		language, delay = "postgres", [2]string{"30 minutes", "3620 seconds"}
	}
	text := strings.Join(section.Commands("Act", language), " ")
	for _, value := range [][2]string{
		{"'virtual'", "'" + category + "'"}, {"2026-11-20 13:00:00", created.Format(layout)}, {"2026-11-20 13:40:00", created.Add(11 * time.Second).Format(layout)},
		{"2026-11-20 13:45:00", end.Add(time.Second).Format(layout)}, delay,
	} {
		expect.That(r.t, strings.Contains(text, value[0]), "the runbook's statement has no %s", value[0])
		text = strings.ReplaceAll(text, value[0], value[1])
	}
	conn := must.Get(r.store.DB().Conn(r.t.Context()))(r.t)
	defer conn.Close()
	moved, batches := int64(0), 0
	for n := int64(1); n > 0; {
		n = 0
		r.eventually(func() error { // a deadlock with a close rolls back the statement alone
			for statement := range strings.SplitSeq(strings.TrimSuffix(text, ";"), ";") {
				res, err := conn.ExecContext(r.t.Context(), statement)
				if err != nil {
					return err
				}
				n, _ = res.RowsAffected()
			}
			return nil
		})
		moved, batches = moved+n, batches+1
	}
	r.t.Logf("the statement has moved %d orders in %d batches", moved, batches)
	expect.That(r.t, moved > 500 && batches > 2, "%d orders were moved in %d batches, want more than a batch", moved, batches)
	counted := r.count("SELECT COUNT(*) FROM orders WHERE id LIKE 'many-%' AND expire_at >= ?", first.Add(longer))
	expect.Equal(r.t, int64(counted), moved, "orders that are due 20 s later")
	expect.Equal(r.t, r.count("SELECT COUNT(*) FROM orders WHERE id LIKE 'many-%' AND expire_at >= ?", end.Add(longer)), 0, "orders that were moved twice")
}
