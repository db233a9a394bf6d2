package realtest

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// ownTables is a shop with tables of its own, the first example of internal/store/testdata/shops.txt, and a pipeline on them. The shop uses plain
// SQL, in sessions with the server's time zone.
type ownTables struct {
	*rig
	db *sql.DB
}

func newOwnTables(t *testing.T, s environ.Servers) *ownTables {
	t.Helper()
	ddl, mapping := example(t)
	r := newBareRig(t, s, newPrefix(), mapping)
	o := &ownTables{rig: r, db: plain(t, r.servers.DSN)}
	for statement := range strings.SplitSeq(ddl, ";\n") {
		if strings.TrimSpace(statement) != "" {
			o.exec(statement)
		}
	}
	r.makeTopics()
	o.must("migrate")
	return o
}

// plain opens the database as any program does: in the server's time zone.
func plain(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	delete(cfg.Params, "time_zone")
	db := must.Get(sql.Open("mysql", cfg.FormatDSN()))(t)
	t.Cleanup(func() { db.Close() })
	return db
}

// example returns the SQL and the YAML of this example.
func example(t *testing.T) (ddl, mapping string) {
	t.Helper()
	data := must.Get(os.ReadFile("../../store/testdata/shops.txt"))(t)
	_, text, _ := strings.Cut(string(data), "## Example: ")
	_, ddl, _ = strings.Cut(text, "```sql\n")
	ddl, _, _ = strings.Cut(ddl, "```")
	_, mapping, _ = strings.Cut(text, "```yaml\n")
	mapping, _, _ = strings.Cut(mapping, "```")
	return ddl, mapping
}

func (o *ownTables) exec(query string, args ...any) {
	o.t.Helper()
	_, err := o.db.ExecContext(o.t.Context(), query, args...)
	must.That(o.t, err == nil, "%s: %v", query, err)
}

func (o *ownTables) count(query string, args ...any) (n int) {
	o.t.Helper()
	err := o.db.QueryRowContext(o.t.Context(), query, args...).Scan(&n)
	must.That(o.t, err == nil, "%s: %v", query, err)
	return n
}

// checkout creates orders for two pieces of one SKU each, which are due in the given number of seconds by the server's clock, and returns them.
func (o *ownTables) checkout(from, to, seconds int) (orders []orderclose.Order) {
	o.t.Helper()
	for id := from; id < to; id++ {
		o.exec("INSERT INTO t_order (id, kind, state, create_time, pay_deadline) VALUES (?, 'virtual', 'WAIT_PAY', NOW(), NOW() + INTERVAL ? SECOND)", id, seconds)
		o.exec("INSERT INTO t_order_line (order_id, goods_id, num) VALUES (?, 7, 2)", id)
		o.exec("UPDATE t_goods_stock SET free = free - 2, held = held + 2 WHERE goods_id = 7 AND free >= 2")
		due := time.Unix(int64(o.count("SELECT UNIX_TIMESTAMP(pay_deadline) FROM t_order WHERE id = ?", id)), 0)
		orders = append(orders, orderclose.Order{ID: fmt.Sprint(id), Category: "virtual", CreatedAt: time.Now(), Due: due})
	}
	return orders
}

// send publishes the records of orders, as a program in another language may do.
func (o *ownTables) send(orders []orderclose.Order) {
	o.t.Helper()
	for _, order := range orders {
		m := must.Get(wire.Record{Order: order, Release: order.Due}.Encode())(o.t)
		o.append(o.cfg.Buckets.TopicAt(time.Now(), order.Due, o.cfg.Topics.Close), kafka.PartitionOf(m.Key, o.cfg.Partitions), m)
	}
}

// The tables existed before, on a server in +08:00 whose clock wrote the times, and the shop uses plain SQL. Orders that were sent are closed by the
// pipeline, the others by the sweep, and paid orders not at all.
func TestReal_AShopsOwnTables(t *testing.T) {
	eachOwnDatabase(t, func(database) []string { return []string{"--default-time-zone=+08:00"} }, func(t *testing.T, s environ.Servers, _ *ownServer) {
		shopsOwnTables(newOwnTables(t, s))
	})
}

func shopsOwnTables(o *ownTables) {
	t := o.t
	zone := o.count("SELECT TIMESTAMPDIFF(HOUR, UTC_TIMESTAMP(), NOW())")
	must.That(t, zone == 8, "the shop's session is %d hours ahead of UTC, want 8", zone)
	o.exec("INSERT INTO t_goods_stock VALUES (7, 1000, 0)")
	o.start("relay", "closer", "compensator")
	o.firstStart()
	o.signal("compensator", syscall.SIGTERM) // on a busy machine, a sweep might close all orders before the pipeline
	records := o.checkout(1, 31, 5)
	for id := 1; id <= 10; id++ { // at once: on a busy machine 5 s are short
		o.exec("UPDATE t_order SET state = 'PAID' WHERE id = ? AND state = 'WAIT_PAY'", id)
	}
	o.send(records)
	o.checkout(31, 41, 3) // never sent
	o.eventually(func() error { return atLeast("receipts of the pipeline", o.count("SELECT COUNT(*) FROM receipts"), 20) })
	o.start("compensator")
	o.until("no order is open", func() bool { return o.count("SELECT COUNT(*) FROM t_order WHERE state = 'WAIT_PAY'") == 0 })
	for what, query := range map[string]string{
		"orders paid that stayed paid": "SELECT COUNT(*) - 10 FROM t_order WHERE state = 'PAID' AND id <= 10",
		"orders closed":                "SELECT COUNT(*) - 30 FROM t_order WHERE state = 'CLOSED' AND id > 10",
		"closed early or hours late, by the shop": "SELECT COUNT(*) FROM t_order WHERE state = 'CLOSED' AND (finish_time < pay_deadline OR finish_time > " +
			"pay_deadline + INTERVAL 10 MINUTE)",
		"closed early, by the receipt":            "SELECT COUNT(*) FROM receipts WHERE closed_at < due OR lateness_ms < 0",
		"receipts of the pipeline":                "SELECT COUNT(*) - 20 FROM receipts WHERE path = 'pipeline' AND CAST(order_id AS UNSIGNED) BETWEEN 11 AND 30",
		"a pipeline that closed what nobody sent": "SELECT COUNT(*) FROM receipts WHERE path = 'pipeline' AND CAST(order_id AS UNSIGNED) NOT BETWEEN 11 AND 30",
		"receipts of the sweep":                   "SELECT COUNT(*) - 10 FROM receipts WHERE path = 'sweep' AND CAST(order_id AS UNSIGNED) > 30",
		"stock that is not back":                  "SELECT ABS(free - 980) + ABS(held - 20) FROM t_goods_stock",
		"orders with a receipt":                   "SELECT COUNT(*) - 30 FROM receipts",
	} {
		expect.Equal(t, o.count(query), 0, "%s: off by", what)
	}
	// Tables that do not match are reported before any change is made.
	o.exec("ALTER TABLE t_order DROP KEY idx_state_deadline")
	if _, code := o.cli("migrate"); code != 3 || !strings.Contains(o.logs.Tail(1000), "CREATE INDEX") {
		t.Errorf("orderclose migrate exited with %d without the index, and said:\n%s", code, o.logs.Tail(1000))
	}
}
