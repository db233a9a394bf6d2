package cli

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// harmful maps the time of the close to a column that an INSERT must fill.
const harmful = `buckets: [1m]
orders:
  table: t
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 2}
  due: {column: late_ms, type: unix_ms}
  closed_at: {column: made, type: datetime, zone: UTC, precision: s}
  items: none
  stock: none
`

// Every command that writes to the orders' tables refuses a harmful mapping, with the line and a hint, before it writes anything.
func TestMySQL_AHarmfulMappingIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	server := os.Getenv(environ.EnvDSN)
	if server == "" && os.Getenv("REQUIRE_REAL") != "1" {
		t.Skip(environ.EnvDSN + " names no server")
	}
	dsn, drop, err := scenario.CreateDatabase(t.Context(), server, nil, "oc_"+strings.ToLower(rand.Text()))
	must.Do(t, err)
	defer func() { _ = drop(context.WithoutCancel(t.Context())) }()
	db := must.Get(sql.Open("mysql", dsn))(t)
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (id BIGINT PRIMARY KEY, state TINYINT NOT NULL, late_ms BIGINT NOT NULL, made DATETIME NOT NULL, "+
		"KEY due (state, late_ms)) ENGINE = InnoDB"); err != nil {
		t.Fatal(err)
	}
	env, file := map[string]string{environ.EnvDSN: dsn}, topicsYAML(t, harmful)
	want := file + ":7:23: orders.closed_at.column: column t.made has a value from when the row is inserted: a close would overwrite it"
	refused := func(args ...string) {
		t.Helper()
		out, stderr, code := run(t, env, append(args, "--config", file)...)
		expect.That(t, code == 3 && strings.Contains(out+stderr, want), "%v: exit %d\n%s%s\nwant %s", args, code, out, stderr, want)
	}
	count := func(query string) (n int) {
		t.Helper()
		must.Do(t, db.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	refused("migrate")
	refused("doctor")
	made := count("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()")
	expect.That(t, made == 1, "there are %d tables", made)
	good := topicsYAML(t, strings.Replace(harmful, "  closed_at: {column: made, type: datetime, zone: UTC, precision: s}\n", "", 1))
	if _, stderr, code := run(t, env, "migrate", "--config", good); code != 0 || !strings.Contains(stderr, "note: no order has the status 0") {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	must.Get(db.ExecContext(t.Context(), "INSERT INTO t VALUES (1, 0, 1000000000000, UTC_TIMESTAMP())"))(t)
	for _, args := range [][]string{{"doctor"}, {"compensate", "--dry-run"}} {
		for accept, want := range map[string]int{"": 3, "accept: [nothing_due_later]\n": 0} {
			text := must.Get(os.ReadFile(good))(t)
			out, stderr, code := run(t, env, append(args, "--config", topicsYAML(t, accept+string(text)))...)
			if code != want || !strings.Contains(out, "1 overdue, 0 not due yet, 0 excluded") && code == 0 ||
				strings.Contains(out, "1 unpaid orders are overdue, and none is due in the future") != (code == 3) {
				t.Errorf("%v with %q: exit %d\n%s%s", args, accept, code, out, stderr)
			}
		}
	}
	refused("compensate")
	expect.Equal(t, count("SELECT COUNT(*) FROM t WHERE state = 0"), 1, "the order was closed")
	must.Get(db.ExecContext(t.Context(), "INSERT INTO t VALUES (2, 0, UNIX_TIMESTAMP() * 1000 - 5000, UTC_TIMESTAMP())"))(t)
	_, stderr, code := run(t, env, "compensate", "--config", good)
	expect.That(t, code == 3 && strings.Contains(stderr, "none is due in the future") && count("SELECT COUNT(*) FROM t WHERE state = 0") == 2,
		"a doubtful zone before the first close: exit %d\n%s", code, stderr)
	accepted := topicsYAML(t, "accept: [nothing_due_later]\n"+string(must.Get(os.ReadFile(good))(t)))
	_, stderr, code = run(t, env, "compensate", "--config", accepted)
	expect.That(t, code == 0 && count("SELECT COUNT(*) FROM t WHERE state = 0") == 0,
		"without Kafka no pipeline has to close the second order first: exit %d\n%s", code, stderr)
	must.Get(db.ExecContext(t.Context(), "UPDATE t SET state = 0, late_ms = 1000000000000 WHERE id = 2"))(t) // the shop opens it again
	out, _, code := run(t, env, "doctor", "--config", good)
	expect.That(t, code == 3 && strings.Contains(out, "none is due in the future: order 2 cannot be closed: closed_before: "), "exit %d\n%s", code, out)
}

// litemall are tables with the columns of linlinjava/litemall that a mapping names, as far as its sources publish
// them, with the due time and the indexes that orderclose needs.
var litemall = []string{
	`CREATE TABLE litemall_order (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, user_id INT NOT NULL, order_sn VARCHAR(63) NOT NULL, order_status SMALLINT NOT NULL,
		consignee VARCHAR(63) NOT NULL DEFAULT 'Ann', goods_price DECIMAL(10,2) NOT NULL DEFAULT 10.00, groupon_price DECIMAL(10,2) NOT NULL DEFAULT 0.00,
		actual_price DECIMAL(10,2) NOT NULL DEFAULT 10.00,
		pay_id VARCHAR(63) NULL, pay_time DATETIME NULL, ship_time DATETIME NULL, end_time DATETIME NULL, add_time DATETIME NULL, update_time DATETIME NULL,
		deleted TINYINT(1) NULL DEFAULT 0,
		pay_deadline DATETIME AS (add_time + INTERVAL 30 MINUTE) VIRTUAL,
		KEY overdue (order_status, pay_deadline, id), KEY by_add (order_status, add_time, id), KEY by_update (order_status, update_time, id)) ENGINE = InnoDB`,
	`CREATE TABLE litemall_order_goods (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, order_id INT NOT NULL DEFAULT 0, goods_id INT NOT NULL DEFAULT 0,
	product_id INT NOT NULL DEFAULT 0,
		number SMALLINT NOT NULL DEFAULT 0, price DECIMAL(10,2) NOT NULL DEFAULT 1.00, comment INT NULL DEFAULT 0, deleted TINYINT(1) NULL DEFAULT 0,
		KEY order_id (order_id), KEY goods_id (goods_id)) ENGINE = InnoDB`,
	`CREATE TABLE litemall_goods_product (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, goods_id INT NOT NULL DEFAULT 0, price DECIMAL(10,2) NOT NULL,
	number INT NOT NULL DEFAULT 0, url VARCHAR(125) NULL,
		update_time DATETIME NULL, KEY goods_id (goods_id)) ENGINE = InnoDB`,
	`CREATE TABLE litemall_coupon_user (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, user_id INT NOT NULL, coupon_id INT NOT NULL, status SMALLINT NULL DEFAULT ` +
		`0, used_time DATETIME NULL, order_id INT NULL, KEY order_id (order_id)) ENGINE = InnoDB`,
	`CREATE TABLE legacy_log (order_id INT NOT NULL PRIMARY KEY, note VARCHAR(9) NULL) ENGINE = MyISAM`,
	// Unpaid, shipped, paid, cancelled by the customer and closed orders, with the clock of Shanghai.
	`INSERT INTO litemall_order (id, user_id, order_sn, order_status, add_time, pay_time, end_time, update_time, deleted)
		SELECT n + 10 * k, 7, CONCAT('SN', n + 10 * k),
		CASE k WHEN 0 THEN 101 WHEN 1 THEN 301 WHEN 2 THEN 201 WHEN 3 THEN 102 ELSE 103 END, t, IF(k IN (1, 2), t, NULL), IF(k > 2, t, NULL), t, 0
		FROM (SELECT n, k, UTC_TIMESTAMP() + INTERVAL 8 HOUR - INTERVAL 3 * n + IF(k = 4, 60, 0) MINUTE AS t
		FROM (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) AS a,
		(SELECT 0 AS k UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) AS b) AS r`,
	"INSERT INTO litemall_order_goods (id, order_id, goods_id, product_id, number) SELECT id + 1000, id, 500, 1, 2 FROM litemall_order",
	"INSERT INTO litemall_goods_product (id, goods_id, price, number) VALUES (1, 500, 9.50, 70)",
	"INSERT INTO litemall_coupon_user (user_id, coupon_id, status, order_id) SELECT user_id, 3, 1, id FROM litemall_order",
}

// litemallYAML is the right mapping.
const litemallYAML = `accept: []
buckets: [1m]
delays: {default: 30m}
orders:
  table: litemall_order
  id: {column: id, type: integer}
  status: {column: order_status, from: 101, to: 103, paid: [201, 202, 203, 301, 401, 402], closed: [102, 104]}
  due: {column: pay_deadline, type: datetime, zone: Asia/Shanghai, precision: s}
  closed_at: {column: update_time, type: datetime, zone: Asia/Shanghai, precision: s}
  where: {deleted: 0}
  items: {table: litemall_order_goods, order: order_id, sku: product_id, quantity: number}
  stock: {table: litemall_goods_product, sku: {column: id, type: integer}, available: number}
  on_close: ["UPDATE litemall_coupon_user SET status = 0 WHERE order_id IN ({ids}) AND status = 1"]
`

// Where a wrong mapping is reported.
const (
	refused = "refused: " // migrate and doctor exit with 3, or every process with 2, because the file shows it
	found   = "found: "   // migrate and doctor exit with 3; migrate no more when an order has been closed
	noted   = "note: "    // doctor says so
	trial   = "trial: "   // migrate and doctor --try-close exit with 3
)

// wrongMappings are changes of litemallYAML that each lose money or close nothing, from a trial on litemall.
var wrongMappings = []struct{ old, new, want string }{
	{"", "", ""},
	{"closed: [102, 104]", "closed: [101, 102]", refused + "101 is listed with two meanings"},
	{"from: 101, to: 103, paid: [201,", "from: 201, to: 103, paid: [201,", refused + "201 is listed with two meanings"},
	{"from: 101, to: 103, paid: [201,", "from: 101, to: 201, paid: [201,", refused + "201 is listed with two meanings"},
	{"from: 101, to: 103", "from: 103, to: 101", found + "or orders.status.from may be the status of closed orders"},
	{"from: 101, to: 103, paid: [201,", "from: 201, to: 103, paid: [", refused + "orders have statuses that orders.status does not name: 101; they count as paid"},
	{"from: 101, to: 103, paid: [201, 202", "from: 201, to: 103, paid: [101", refused +
		"4 of 4 orders with the status 201 (orders.status.from) have a pay_time: paid orders would be closed"},
	{"from: 101, to: 103, paid: [201,", "from: 101, to: 201, paid: [103,", refused +
		"4 of 4 orders with the status 201 (orders.status.to) have a pay_time: a close would mark unpaid orders as paid"},
	{"paid: [201, 202, 203, 301, 401, 402], closed: [102, 104]", "closed: [102, 201]", refused + "does not name: 301; they count as paid"},
	{"to: 103", "to: 40000", refused + ", which has no 40000"},
	{"from: 101", `from: "101"`, refused + "of different kinds"},
	{"Asia/Shanghai, precision: s}\n  closed", "Asia/Tokyo, precision: s}\n  closed", found + "4 unpaid orders are overdue, and none is due in the future"},
	{"Asia/Shanghai, precision: s}\n  closed", "UTC, precision: s}\n  closed", found + "but the longest delay in topics.yaml is 30m"},
	{"zone: Asia/Shanghai, precision: s}\n  closed", "precision: s}\n  closed", refused + "no time zone is given"},
	{"column: pay_deadline", "column: add_time", found + "none is due in the future"},
	{"column: pay_deadline", "column: update_time", refused + "is mapped as when the order is due and as when the order was closed"},
	{"column: update_time", "column: end_time", noted + "not every close changes the column update_time"},
	{"column: pay_deadline", "column: end_time", refused + "has no index on order_status, end_time and id"},
	{"column: pay_deadline", "column: pay_limit", refused + "there is no column litemall_order.pay_limit"},
	{"type: datetime, zone: Asia/Shanghai, precision: s}\n  closed", "type: unix_s}\n  closed", refused + "is datetime, and is mapped as unix_s"},
	{"column: update_time", "column: add_time", refused + "pay_deadline is generated from add_time"},
	{"column: update_time", "column: pay_time", noted + "not every close changes the column update_time"},
	{"  where:", "  lock: user_id\n  where:", refused + "litemall_order.user_id has the name of an id"},
	{"  where:", "  set: {end_time: \"now()\"}\n  where:", refused + `datetime, which cannot hold "now()"`},
	{"deleted: 0", "deleted: 1", found + "excludes all 4 unpaid orders"},
	{"deleted: 0", "deleted: null", found + "excludes all 4 unpaid orders"},
	{"deleted: 0", "user_id: 0", found + "excludes all 4 unpaid orders"},
	{"deleted: 0", `deleted: "no"`, refused + `is compared with "no"`},
	{"  where:", "  not_before: 2999-01-01T00:00:00Z\n  where:", refused + "is in the future"},
	{"id: {column: id, type: integer}\n  status", "id: {column: order_sn, type: text}\n  status", refused + "has no unique index PRIMARY on order_sn alone"},
	{"id: {column: id, type: integer}\n  status", "id: id\n  status", refused + "and is mapped as text"},
	{"order: order_id", "order: id", refused + "litemall_order_goods.id numbers its rows"},
	{"sku: product_id", "sku: id", refused + "litemall_order_goods.id numbers its rows"},
	{"sku: product_id", "sku: goods_id", trial + "topics.yaml:12:10: orders.stock: "},
	{"quantity: number", "quantity: comment", trial + "no line of the order has a quantity"},
	{"quantity: number", "quantity: price", refused + "can hold values that are not whole numbers"},
	{"quantity: number", "quantity: product_id", refused + "is mapped as the SKU of a line and as the quantity of a line"},
	{"available: number", "available: goods_id", refused + "litemall_goods_product.goods_id leads the index goods_id"},
	{"available: number", "available: price", refused + "can hold values that are not whole numbers"},
	{"available: number", "available: id", refused + "destroys the SKU"},
	{"available: number", "available: number, reserved: number", refused + "is mapped as"},
	{"stock: {table: litemall_goods_product", "stock: {table: litemall_order", refused + "is mapped as the stock and as orders"},
	{"items: {table: litemall_order_goods, order: order_id, sku: product_id, quantity: number}", "items: none", refused + "stock is mapped, but no items"},
	{"WHERE order_id IN ({ids})", "WHERE NOT order_id IN ({ids})", trial + "topics.yaml:13:14: orders.on_close[0]: the statement changes "},
	{"WHERE order_id IN ({ids})", "WHERE order_id NOT IN ({ids})", trial + "topics.yaml:13:14: orders.on_close[0]: the statement changes "},
	{"WHERE order_id IN ({ids})", "WHERE id IN ({ids})", refused + "column litemall_coupon_user.id, which the statement compares with the ids of orders, " +
		"numbers the rows of its table"},
	{"WHERE order_id IN ({ids})", "WHERE user_id IN ({ids})", refused + "the statement has no index to find its rows"},
	{"WHERE order_id IN ({ids}) AND status = 1", "WHERE order_id = 1", refused + "must contain IN ({ids}) once"},
	{"AND status = 1", "OR status = 1", refused + "the statement has no index to find its rows"},
	{"UPDATE litemall_coupon_user SET status = 0 WHERE order_id IN ({ids}) AND status = 1", "UPDATE litemall_order SET end_time = NULL WHERE id IN ({ids})",
		refused + "a close writes to this table by itself"},
	{"UPDATE litemall_coupon_user SET status = 0 WHERE order_id IN ({ids}) AND status = 1", "DELETE FROM legacy_log WHERE order_id IN ({ids})",
		refused + "table legacy_log of the engine MyISAM, which has no transactions"},
	{"UPDATE litemall_coupon_user SET status = 0 WHERE order_id IN ({ids}) AND status = 1",
		"INSERT INTO litemall_coupon_user (user_id, coupon_id, order_id) SELECT user_id, NULL, id FROM litemall_order WHERE id IN ({ids})",
		trial + "orders.on_close[0]: "},
}

// A mapping that loses money is refused, found by its numbers, or noted, before the first close.
func TestMySQL_WrongMappingsOfAShop(t *testing.T) {
	for _, server := range []string{environ.EnvDSN, "ORDERCLOSE_MYSQL_DSN"} {
		t.Run(server, func(t *testing.T) { wrongMappingsOn(t, server) })
	}
}

func wrongMappingsOn(t *testing.T, server string) {
	dsn := os.Getenv(server)
	if dsn == "" && os.Getenv("REQUIRE_REAL") != "1" {
		t.Skip(server + " names no server")
	}
	dsn, drop, err := scenario.CreateDatabase(t.Context(), dsn, nil, "oc_"+strings.ToLower(rand.Text()))
	must.Do(t, err)
	defer func() { _ = drop(context.WithoutCancel(t.Context())) }()
	db := must.Get(sql.Open("mysql", dsn))(t)
	defer func() { _ = db.Close() }()
	for _, query := range litemall {
		_, err := db.ExecContext(t.Context(), query)
		must.That(t, err == nil, "%s: %v", query, err)
	}
	env := map[string]string{environ.EnvDSN: dsn}
	// The first migrate creates the tables by which due times by rule are known. Its checks come after that.
	byRule := strings.NewReplacer("column: pay_deadline", "from: add_time", "closed: [102, 104]", "closed: [104]").Replace(litemallYAML)
	if out, stderr, code := run(t, env, "migrate", "--config", topicsYAML(t, byRule)); code != 3 || !strings.Contains(stderr, "does not name: 102") {
		t.Errorf("the first migrate: exit %d\n%s%s", code, out, stderr)
	}
	for i, c := range wrongMappings {
		yaml := strings.Replace(litemallYAML, c.old, c.new, 1)
		expect.That(t, yaml != litemallYAML || i <= 0, "%q is not in the mapping", c.old)
		file := topicsYAML(t, yaml)
		args := []string{"doctor", "--config", file}
		if strings.HasPrefix(c.want, trial) || i == 0 {
			args = append(args, "--try-close")
		}
		kind, want, _ := strings.Cut(c.want, ": ")
		// Each is the first mapping of the database: a later one with another status is refused.
		must.Get(db.ExecContext(t.Context(), "DELETE FROM orderclose_schema WHERE owner IS NOT NULL"))(t)
		for _, args := range [][]string{{"migrate", "--config", file}, args} {
			out, stderr, code := run(t, env, args...)
			said := strings.ReplaceAll(out+stderr, "\n", " ")
			exits := map[string]int{"": 0, "note": 0, "found": 3, "refused": 3, "trial": 3}[kind]
			inFile := kind == "refused" && code == 2
			if inFile {
				exits = 2
			}
			if code != exits && !(kind == "trial" && strings.HasPrefix(want, "no line")) || !strings.Contains(said, want) {
				t.Errorf("%s instead of %q: orderclose %s: exit %d, want %d and %q:\n%s", c.new, c.old, args[0], code, exits, want, said)
			}
			if inFile {
				break
			}
		}
	}
}
