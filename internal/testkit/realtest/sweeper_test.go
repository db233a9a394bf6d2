package realtest

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// Two sweepers have a database and nothing else. One is killed under load. Every order closes once, within the interval and what the machine needs.
func TestReal_SweepersNeedADatabaseOnly(t *testing.T) { eachDatabase(t, sweepersAlone) }

func sweepersAlone(t *testing.T, s environ.Servers) {
	r := newRig(t, s) // Kafka is for the producer of the test, and no sweeper knows it
	r.disturbed = true
	r.extra = func([]string) []string { return []string{environ.EnvBrokers + "=", environ.EnvRedis + "="} }
	r.start("sweeper-1", "sweeper-2")

	steps := scenario.Plan(scenario.Spec{Seed: 11, Orders: 400, Over: 15 * time.Second, SKUs: skus, Categories: categories})
	for i := range steps {
		if steps[i].Fate == scenario.Unpaid {
			steps[i].Fate = scenario.Unpublished
		}
	}
	played := make(chan error, 1)
	go func() { played <- r.shop.Run(t.Context(), time.Now(), steps) }()
	r.created(200)
	r.signal("sweeper-1", syscall.SIGKILL)
	expect.NoError(t, <-played)
	r.settle()
	r.checkWithoutKafka()

	v := r.check()
	expect.That(t, v.ByPath["sweep"] != 0 && v.ByPath["pipeline"] <= 0, "closed by %v", v.ByPath)
	// The lock of a killed process ends with its connection, and the other one asks each second whether a sweep is due.
	t.Logf("the latest close was %d ms late", r.count("SELECT MAX(lateness_ms) FROM receipts"))
	r.deletedProduct()
}

// deletedProduct plays an order whose product was deleted: log and commands say why it is open, and a person inserts its row of stock for a moment.
func (r *rig) deletedProduct() {
	r.t.Helper()
	const cause = `stock_row_missing: SKU "deleted" has no row in table stock`
	r.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('stuck', 1, 'deleted', 2)")
	r.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('stuck', 'book', 0, '2026-01-01', '2026-01-02', 1)")
	r.until("a sweep names the order", func() bool {
		return strings.Contains(r.logs.Tail(100_000), `msg="order not closed"`) && strings.Contains(r.logs.Tail(100_000), "order=stuck cause=stock_row_missing")
	})
	for _, args := range [][]string{{"status"}, {"order", "stuck"}} {
		out, code := r.cli(args...)
		expect.That(r.t, code == 0 && strings.Contains(out, cause), "orderclose %v exits with %d, and prints\n%s\nwant %q", args, code, out, cause)
	}
	section, _ := runbook.At("an-order-cannot-be-closed")
	insert, remove, _ := strings.Cut(strings.ReplaceAll(strings.Join(section.Commands("Act", "sql"), " "), "'SKU'", "'deleted'"), ";")
	r.exec(insert)
	r.cli("compensate") // a sweeper may be faster
	r.until("the order is closed", func() bool { return r.count("SELECT COUNT(*) FROM orders WHERE id = 'stuck' AND status = 2") == 1 })
	r.heldStock()
	r.exec(strings.TrimSuffix(remove, ";"))
	if out, _ := r.cli("order", "stuck"); !strings.Contains(out, "quantity 2 of SKU deleted came back (close)") {
		r.t.Errorf("orderclose order prints\n%s", out)
	}
}

// heldStock plays a transaction that somebody has left open with the row of a SKU. The statement of the runbook shows it.
func (r *rig) heldStock() {
	r.t.Helper()
	r.exec("UPDATE stock SET reserved = 2 WHERE sku_id = 'deleted'")
	tx := must.Get(r.store.DB().BeginTx(r.t.Context(), nil))(r.t)
	defer tx.Rollback()
	must.Get(tx.ExecContext(r.t.Context(), "SELECT * FROM stock WHERE sku_id = 'deleted' FOR UPDATE"))(r.t)
	r.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('waits', 1, 'deleted', 2)")
	r.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('waits', 'book', 0, '2026-01-01', '2026-01-02', 1)")
	for _, args := range [][]string{{"status"}, {"order", "waits"}} {
		r.until(fmt.Sprintf("orderclose %v names the lock; not while a sweeper waits for it, and has the order", args), func() bool {
			out, _ := r.cli(args...)
			return strings.Contains(out, `locked: another transaction locks SKU "deleted" in table stock`)
		})
	}
	section, _ := runbook.At("an-order-cannot-be-closed")
	holders := regexp.MustCompile("`(SELECT trx_[^`]*)`.*`(SELECT pid,[^`]*)`").FindStringSubmatch(section.Text)
	query := holders[1]
	if r.store.Dialect() == store.Postgres {
		query = holders[2]
	}
	expect.That(r.t, r.count("SELECT COUNT(*) FROM ("+query+") AS open") > 0, "%s shows no transaction", query)
	must.Do(r.t, tx.Rollback())
	r.until("the order is closed", func() bool { return r.count("SELECT COUNT(*) FROM orders WHERE id = 'waits' AND status = 2") == 1 })
}

// checkWithoutKafka checks what commands say beside a sweeper.
func (r *rig) checkWithoutKafka() {
	r.t.Helper()
	r.until("a sweeper has the lease, which a busy database may refuse for a while, and a period has ended", func() bool {
		out, code := r.cli("status")
		return code == 0 && strings.Contains(out, "; lease of the compensator: compensator@")
	})
	for command, want := range map[string]string{
		"doctor":                       "the writes of a close succeed",
		"pause --for 1m --reason test": "all orders until",
	} {
		out := r.must(strings.Fields(command)...)
		expect.That(r.t, strings.Contains(out, want), "orderclose %s prints\n%s\nwant %q", command, out, want)
	}
	r.must("resume")
	for _, command := range []string{"dlq ls", "topics check"} {
		if _, code := r.cli(strings.Fields(command)...); code != 2 || !strings.Contains(r.logs.Tail(1000), "have none") {
			r.t.Errorf("orderclose %s exits with %d, and does not say what it needs Kafka for", command, code)
		}
	}
}
