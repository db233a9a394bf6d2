package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// Lines of one order have a sum below zero or beyond 64 bits, for the second table of stock too. The neighbours in the batch close.
func TestCloseOrders_ChecksTheSumsOfEachOrderInEachTable(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: {column: due, type: unix_ms}
  items: {table: t_line, order: oid, sku: sku, quantity: num}
  stock:
    - {table: t_stock, sku: sku, available: free}
    - {table: t_total, sku: {column: id, type: integer}, line: product, available: free}
`)})
		for _, ddl := range []string{
			"CREATE TABLE t_order (id BIGINT PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL)",
			"CREATE INDEX st ON t_order (state, due, id)",
			"CREATE TABLE t_line (id INT PRIMARY KEY, oid BIGINT NOT NULL, sku VARCHAR(20) NULL, num BIGINT NOT NULL, product BIGINT NULL)",
			"CREATE INDEX ol ON t_line (oid)",
			"CREATE TABLE t_stock (sku VARCHAR(20) PRIMARY KEY, free BIGINT NOT NULL)",
			"CREATE TABLE t_total (id BIGINT PRIMARY KEY, free BIGINT NOT NULL)",
			"INSERT INTO t_stock VALUES ('a', 100), ('b', 100)", "INSERT INTO t_total VALUES (1, 100), (2, 100)",
			"INSERT INTO t_order VALUES (1, 0, 1000), (2, 0, 1000), (3, 0, 1000), (4, 0, 1000)",
			"INSERT INTO t_line VALUES (1, 1, 'a', 5, 1), (2, 1, 'a', -5, 2), (3, 2, 'b', 10, 2), (4, 3, 'a', 9223372036854775807, NULL), " +
				"(5, 3, 'a', 9223372036854775807, NULL), (6, 3, 'a', 5, NULL), (7, 4, 'a', 1099511627776, NULL), (8, 4, 'a', 1, NULL)",
		} {
			exec(t, s.DB(), ddl)
		}
		must.Do(t, s.Migrate(t.Context()))
		for range 2 {
			reqs := []orderclose.CloseRequest{{OrderID: "1"}, {OrderID: "2"}, {OrderID: "3"}, {OrderID: "4"}}
			for _, o := range must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, reqs))(t) {
				expect.That(t, o.OrderID == "2" || o.Cause == orderclose.LinesWrong, "order %s: %s, %s, %v", o.OrderID, o.Verdict, o.Cause, o.Err)
			}
		}
		got := texts(t, s, "SELECT CONCAT(sku, ' ', free) FROM t_stock UNION ALL SELECT CONCAT(id, ' ', free) FROM t_total ORDER BY 1")
		must.That(t, got == "1 100, 2 110, a 100, b 110", "the stock is %s", got)
	})
}

// The table writes its statuses in another case than the mapping, and its collation ignores that.
func TestMySQL_AnAuditTakesStatusesAsTheDatabaseDoes(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: open, to: closed, paid: [paid]}
  due: {column: due, type: unix_ms}
  items: none
  stock: none
`)})
		exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT PRIMARY KEY, state ENUM('Open', 'Closed', 'Paid', 'Cart') CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"+
			" NOT NULL, due BIGINT NOT NULL, KEY (state, due, id))")
		exec(t, s.DB(), "INSERT INTO t_order VALUES (1, 'Open', 1000), (2, 'Open', 1000), (3, 'Open', 1000)")
		must.Do(t, s.Migrate(t.Context()))
		must.Get(closeOrders(t, s, "1", "2", "3"))(t)
		exec(t, s.DB(), "UPDATE t_order SET state = ELT(id, state, 'Paid', 'Cart')")
		now := must.Get(s.Now(t.Context()))(t)
		rows, _, err := s.AuditClosed(t.Context(), now.Add(-time.Hour), now.Add(time.Hour), store.ReceiptKey{}, 10)
		must.Do(t, err)
		got := ""
		for _, r := range rows {
			got += fmt.Sprintf("%s %s %v, ", r.Part.Status, r.Part.State, r.Part.Unlisted)
		}
		expect.That(t, got == "Closed closed false, Paid paid false, Cart other true, ", "%s", got)
	})
}

// A row of stock is locked for a while, and one of the orders that wait for it has a SKU without a row.
func TestCloseOrders_AnOrderThatFailsInALaterRoundIsAlone(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s := openMigrated(t, store.Options{})
		exec(t, s.DB(), "INSERT INTO stock (sku_id, available, reserved) VALUES ('hot', 100, 0), ('gone', 100, 0)")
		overdue(t, s, "free")
		overdueWith(t, s, "hot", shopdb.Item{SKU: "hot", Quantity: 1})
		overdueWith(t, s, "bad", shopdb.Item{SKU: "hot", Quantity: 1}, shopdb.Item{SKU: "gone", Quantity: 1})
		exec(t, s.DB(), "DELETE FROM stock WHERE sku_id = 'gone'")
		tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
		exec(t, tx, "UPDATE stock SET available = 1 WHERE sku_id = 'hot'")
		var out []orderclose.Outcome
		ended := make(chan error)
		go func() {
			var err error
			out, err = s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "free"}, {OrderID: "hot"}, {OrderID: "bad"}})
			ended <- err
		}()
		storetest.Await(t, "the first round has ended", func() (string, bool) {
			got := texts(t, s, "SELECT order_id FROM receipts")
			return got, got == "free"
		})
		must.Do(t, tx.Rollback())
		must.Do(t, <-ended)
		expect.That(t, out[0].Verdict == orderclose.Closed && out[1].Verdict == orderclose.Closed && out[2].Cause == orderclose.StockRowMissing, "%+v", out)
	})
}

// A unique index of a table is none of its heirs: one SKU of an order has two rows, and another one has none.
func TestPostgres_ARowOfAnHeirIsNotThatOfAnotherSKU(t *testing.T) {
	onPostgres(t, func(t *testing.T) {
		s := openMigrated(t, store.Options{})
		exec(t, s.DB(), "INSERT INTO stock (sku_id, available, reserved) VALUES ('twice', 100, 5), ('gone', 100, 5)")
		overdueWith(t, s, "a", shopdb.Item{SKU: "twice", Quantity: 1}, shopdb.Item{SKU: "gone", Quantity: 1})
		exec(t, s.DB(), "CREATE TABLE stock_part () INHERITS (stock)")
		exec(t, s.DB(), "INSERT INTO stock_part SELECT * FROM stock WHERE sku_id = 'twice'")
		exec(t, s.DB(), "DELETE FROM stock WHERE sku_id = 'gone'")
		out, err := s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "a"}})
		expect.That(t, err != nil, "%+v", out)
	})
}

// The name of a table of stock is written in two ways.
func TestCheckMapping_RefusesATableOfStockUnderTwoNames(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		setup := open(t, store.Options{DSN: dsn})
		for _, ddl := range []string{
			"CREATE TABLE t_order (id BIGINT PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL)",
			"CREATE INDEX st ON t_order (state, due, id)",
			"CREATE TABLE t_line (id INT PRIMARY KEY, oid BIGINT NOT NULL, sku VARCHAR(20) NOT NULL, sku2 VARCHAR(20) NOT NULL, num INT NOT NULL)",
			"CREATE INDEX ol ON t_line (oid)",
			"CREATE TABLE t_stock (sku VARCHAR(20) PRIMARY KEY, free INT NOT NULL, held INT NOT NULL, total INT NOT NULL)",
		} {
			exec(t, setup.DB(), ddl)
		}
		here := texts(t, setup, map[bool]string{true: "SELECT current_schema()", false: "SELECT DATABASE()"}[isPostgres(t)])
		s := open(t, store.Options{DSN: dsn, Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: {column: due, type: unix_ms}
  items: {table: t_line, order: oid, sku: sku, quantity: num}
  stock:
    - {table: t_stock, sku: sku, available: free, reserved: held}
    - {table: "`+here+`.t_stock", sku: sku, line: sku2, available: total}
`)})
		err := s.CheckMapping(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), "is listed twice"), "%v", err)
	})
}

// A session of the shop pads CHAR columns, and is in another time zone than UTC.
func TestRecordPayment_IsRightInAnySessionOfTheShop(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		m := ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: text}
  status: {column: state, from: 0, to: 4, paid: [1], closed: [5]}
  due: {column: due, type: unix_ms}
  lock: {column: touched, type: timestamp, precision: s}
  payment_id: pay_no
  items: none
  stock: none
`)
		m.PaidAt = &mapping.TimeColumn{Column: "paid", Type: mapping.Timestamp, Precision: mapping.Seconds}
		s := open(t, store.Options{DSN: dsn, Orders: m})
		exec(t, s.DB(), "CREATE TABLE t_order (id CHAR(32) NOT NULL PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, pay_no CHAR(64) NULL, "+
			"paid TIMESTAMP NULL DEFAULT NULL, touched TIMESTAMP NULL DEFAULT NULL, KEY st (state, due, id))")
		must.Do(t, s.Migrate(t.Context()))
		for i, zone := range []string{"-05:00", "+00:00", "+13:00"} {
			for _, interpolate := range []bool{true, false} {
				id := fmt.Sprintf("ORD-%d-%v", i, interpolate)
				exec(t, s.DB(), "INSERT INTO t_order (id, state, due, touched) VALUES (?, 0, 1000, UTC_TIMESTAMP() - INTERVAL 1 MINUTE)", id)
				cfg := must.Get(mysql.ParseDSN(dsn))(t)
				cfg.InterpolateParams = interpolate
				cfg.Params = map[string]string{"time_zone": "'" + zone + "'", "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH'"}
				db := sql.OpenDB(must.Get(mysql.NewConnector(cfg))(t))
				for _, want := range []callback.Recorded{callback.RecordedPaid, callback.RecordedAlready} {
					tx := must.Get(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
					got, err := callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx),
						store.LatePayment{OrderID: id, PaymentID: "pi_1", Amount: 1, Currency: "EUR"})
					expect.That(t, got == want && err == nil, "%s: %q, %v; want %q", id, got, err, want)
					must.Do(t, tx.Commit())
				}
				must.Do(t, db.Close())
				var paid, touched int
				must.Do(t, s.DB().QueryRow("SELECT COALESCE(ABS(TIMESTAMPDIFF(SECOND, paid, UTC_TIMESTAMP())), -1), "+
					"COALESCE(ABS(TIMESTAMPDIFF(SECOND, touched, UTC_TIMESTAMP())), -1) FROM t_order WHERE id = ?", id).Scan(&paid, &touched))
				expect.That(t, paid >= 0 && paid <= 30 && touched <= 30, "%s in %s was paid %d seconds off, and its lock is %d off", id, zone, paid, touched)
			}
		}
	})
}

// A producer compares categories byte by byte.
func TestDueByRule_CategoriesAreComparedByteByByte(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		cfg := must.Get(config.Parse("topics.yaml", []byte(`
delays: {default: 30m, categories: {virtual: 5m}}
buckets: [1m, 30m]
orders:
  table: t_order
  id: {column: id, type: integer}
  due: {from: add_time, type: unix_ms}
  status: {column: state, from: 0, to: 4, paid: [1, 2, 3], closed: [5]}
  category: kind
  items: none
  stock: none
`)))(t)
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: cfg.Orders, Delays: cfg.Delays, Pipeline: "p"})
		exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT PRIMARY KEY, state INT NOT NULL, add_time BIGINT NOT NULL, kind VARCHAR(20) NULL)")
		exec(t, s.DB(), "CREATE INDEX st ON t_order (state, add_time, id)")
		must.Do(t, s.Migrate(t.Context()))
		must.Do(t, s.RecordDelays(t.Context()))
		created := must.Get(s.Now(t.Context()))(t).Add(-time.Hour)
		kinds := []string{"virtual", "virtual ", "Virtual", " virtual", "", "é"}
		for i, kind := range kinds {
			exec(t, s.DB(), fmt.Sprintf("INSERT INTO t_order (id, state, add_time, kind) VALUES (%d, 0, %d, '%s')", i, created.UnixMilli(), kind))
			o := must.Get(s.PreviewClose(t.Context(), "", []orderclose.CloseRequest{{OrderID: fmt.Sprint(i)}}))(t)
			want := cfg.Delays.For(orderclose.Facts{CreatedAt: created, Categories: []string{kind}}).Due
			expect.That(t, o[0].Due.Equal(want), "category %q is due at %v, want %v", kind, o[0].Due, want)
		}
		found := must.Get(s.Overdue(t.Context(), created.Add(2*time.Hour), orderclose.Order{}, 100))(t)
		must.That(t, len(found) == len(kinds), "a sweep finds %d of %d orders", len(found), len(kinds))
	})
}

// The database writes such an id as text with zeros before it.
func TestRecordPayment_FindsAnOrderWhoseIDHasZerofill(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", " {table: t_order, id: {column: id, type: integer}, "+
			"status: {column: state, from: 0, to: 4, paid: [1]}, due: {column: due, type: unix_ms}, items: none, stock: none}")})
		exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT(10) UNSIGNED ZEROFILL PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, KEY (state, due, id))")
		exec(t, s.DB(), "INSERT INTO t_order VALUES (7, 0, 1000)")
		must.Do(t, s.Migrate(t.Context()))
		got := must.Get(paid(t, s, "7", "p1"))(t)
		verdicts := must.Get(closeOrders(t, s, "7"))(t)
		expect.That(t, got == callback.RecordedPaid && verdicts[0] == orderclose.AlreadyPaid, "the payment is %s, and a close says %s", got, verdicts[0])
	})
}

// A new month's table has another default collation: the tables cannot be merged by id, but by category.
func TestMySQL_MonthsHaveOneCollationOfIDs(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: orders_{yyyyMM}
  id: order_no
  status: {column: status, from: 10, to: 90, paid: [20]}
  due: {column: due, type: unix_ms}
  created: {column: created, type: unix_ms}
  category: kind
  items: none
  stock: none
  shards: {on: created, zone: UTC}
`)})
		for i, collation := range []string{"utf8mb4_general_ci", "utf8mb4_unicode_ci"} {
			table := "orders_" + time.Now().UTC().AddDate(0, i, 0).Format("200601")
			exec(t, s.DB(), fmt.Sprintf("CREATE TABLE %s (order_no VARCHAR(40) PRIMARY KEY, kind VARCHAR(9), status INT NOT NULL, due BIGINT NOT NULL, "+
				"created BIGINT NOT NULL, KEY (status, due, order_no)) COLLATE %s", table, collation))
			exec(t, s.DB(), fmt.Sprintf("INSERT INTO %s VALUES ('a%d', 'x', 10, 1000, 1000)", table, i))
		}
		must.Do(t, s.Migrate(t.Context()))
		must.Do(t, s.CheckMapping(t.Context()))
		broken, ok := errors.AsType[*store.MappingError](s.SetAside(true))
		must.That(t, ok && len(broken.Problems) == 1 && broken.Problems[0].Path == "id.column", "%v", broken)
		exec(t, s.DB(), broken.Problems[0].Fix)
		must.Do(t, s.CheckMapping(t.Context()))
		must.Do(t, s.SetAside(true))
		found := must.Get(s.Overdue(t.Context(), time.Now(), orderclose.Order{}, 9))(t)
		expect.That(t, len(found) == 2 && found[1].Category == "x", "a sweep finds %+v", found)
	})
}

// The server fills a category with spaces, refuses a status that its enum does not have, has NaN, and no number of 64 bits without a sign.
func TestPostgres_TypesThatOtherDatabasesDoNotHave(t *testing.T) {
	onPostgres(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", " {table: t_order, id: {column: id, type: integer}, "+
			"status: {column: state, from: open, to: closed, paid: [paid, shipped]}, due: {column: due, type: unix_ms}, category: kind, items: none, "+
			"stock: none, event: {type: order.closed, columns: [price]}}")})
		exec(t, s.DB(), "CREATE TYPE state AS ENUM ('open', 'closed', 'paid')")
		exec(t, s.DB(), "CREATE TABLE t_order (id bigint PRIMARY KEY, state state NOT NULL, due bigint NOT NULL, kind char(8), price float8)")
		exec(t, s.DB(), "CREATE INDEX ON t_order (state, due, id)")
		exec(t, s.DB(), "INSERT INTO t_order VALUES (1, 'open', 1000, 'vip', 1), (2, 'open', 1000, NULL, 'NaN')")
		must.Do(t, s.Migrate(t.Context()))
		expect.Says(t, s.CheckMapping(t.Context()), "status.paid[1]", "a status that no order can have")
		exec(t, s.DB(), "ALTER TYPE state ADD VALUE 'shipped'")
		must.Do(t, s.CheckMapping(t.Context()))
		must.Get(s.Pause(t.Context(), "vip", time.Hour, "test", false))(t)
		found := must.Get(s.Overdue(t.Context(), time.Now(), orderclose.Order{}, 9))(t)
		expect.That(t, len(found) == 2 && found[0].Category == "vip", "a sweep finds %+v", found)
		const none = "9223372036854775808"
		got := must.Get(closeOrders(t, s, "1", "2", none))(t)
		expect.That(t, fmt.Sprint(got) == "[paused closed not_found]", "%v", got)
		_, err := paid(t, s, none, "p1")
		expect.That(t, errors.Is(err, callback.ErrNoOrder), "%v", err)
		must.Get(s.OrderHistory(t.Context(), none))(t)
	})
}
