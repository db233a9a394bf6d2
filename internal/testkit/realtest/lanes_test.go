package realtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/environ"
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

func replayBesideFreshOrders(t *testing.T, servers environ.Servers) {
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
