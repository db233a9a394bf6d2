package realtest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
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

// overdue creates orders that were due a minute ago, each with a line, and appends
// their records to the replay topic.
func (r *rig) overdue(orders int) {
	r.t.Helper()
	chunk := min(orders, 1000)
	created := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	due := created.Add(59 * time.Minute)
	for first := 0; first < orders; first += chunk {
		var rows, lines strings.Builder
		messages := make([]wire.Message, 0, chunk)
		for i := first; i < first+chunk; i++ {
			id := fmt.Sprintf("replayed-%d", i)
			fmt.Fprintf(&rows, ",('%s','',0,'%s','%s',1)", id, created.Format("2006-01-02 15:04:05.000"), due.Format("2006-01-02 15:04:05.000"))
			fmt.Fprintf(&lines, ",('%s',1,'%s',1)", id, scenario.SKU(i%skus))
			m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: created, Due: due}, Release: due}.Encode())(r.t)
			messages = append(messages, m.Resend())
		}
		r.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES " + rows.String()[1:])
		r.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES " + lines.String()[1:])
		must.Get(r.kafka.Append(r.t.Context(), r.cfg.Topics.Replay, first/chunk%r.cfg.Partitions, messages))(r.t)
	}
	r.exec("UPDATE stock SET available = available - ?, reserved = reserved + ?", orders/skus, orders/skus)
}

// Orders with a delay of two seconds are created and close meanwhile. Their lateness
// is logged but not checked, because it depends on the machine.
func TestReal_AHundredThousandReplaysDelayNoOrderThatIsDue(t *testing.T) {
	eachDatabase(t, replaysDelayNoOrderThatIsDue)
}

func replaysDelayNoOrderThatIsDue(t *testing.T, servers config.Servers) {
	r := newRig(t, servers)
	const replays = 100_000
	r.overdue(replays)
	r.start("relay", "closer")
	for i := range 400 {
		o := r.shop.Producer.Order(fmt.Sprint("fresh-", i), time.Now(), "flash-sale")
		must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(i % skus), Quantity: 1}}))
		must.Do(t, r.shop.Publish(t.Context(), o))
		scenario.Pause(t.Context(), 10*time.Millisecond)
	}
	r.settle()
	r.caughtUp()
	r.check()
	latest := r.count("SELECT COALESCE(MAX(lateness_ms), -1) FROM receipts WHERE order_id LIKE 'fresh-%'")
	beside := r.count("SELECT COUNT(*) FROM receipts WHERE order_id LIKE 'replayed-%'" +
		" AND closed_at > (SELECT MIN(closed_at) FROM receipts WHERE order_id LIKE 'fresh-%')")
	t.Logf("fresh orders were at most %d ms late; %d of %d replays were still to be closed when the first was", latest, beside, replays)
}

// Due times move later; earlier with another record; earlier without one; and to
// never.
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
	r.start("compensator")
	r.settle()
	v := r.check()
	expect.That(t, v.Closed() == 3 && v.Cancelled == 1, "closed %v, %d cancelled", v.ByPath, v.Cancelled)
	for id, want := range map[string]string{"later": "pipeline", "earlier": "pipeline", "far": "sweep"} {
		got := strings.Join(r.texts("SELECT path FROM receipts WHERE order_id = ?", id), " ")
		expect.That(t, got == want, "order %s was closed by %q; want the %s", id, got, want)
	}
}
