package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// ordersOf reads a topics.yaml with a section orders.
func ordersOf(t *testing.T, head, orders string) *mapping.Mapping {
	t.Helper()
	cfg := must.Get(config.Parse("topics.yaml", []byte(head+"\norders:"+orders)))(t)
	return cfg.Orders
}

// paid records a payment of 100 cents.
func paid(t *testing.T, s *store.Store, order, payment string) (callback.Recorded, error) {
	t.Helper()
	tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
	r, err := callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx),
		store.LatePayment{OrderID: order, PaymentID: payment, Amount: 100, Currency: "EUR"})
	if err != nil {
		must.Do(t, tx.Rollback())
		return r, err
	}
	return r, tx.Commit()
}

func TestRecordPayment_FindsAnOrderInTheTableOfAnyMonth(t *testing.T) {
	on(t, func(t *testing.T) {
		for _, on := range []string{"due", "created"} {
			t.Run(on, func(t *testing.T) { ordersOfAnyMonth(t, on) })
		}
	}, "mariadb", "postgres")
}

func ordersOfAnyMonth(t *testing.T, on string) {
	m := ordersOf(t, "delays: {default: 5d, max: 27d}\nbuckets: [1m, 10d]", `
  table: orders_{yyyyMM}
  id: {column: order_no, type: text}
  status: {column: status, from: 10, to: 90, paid: [20], closed: [80]}
  due: {column: expire_ms, type: unix_ms}
  created: {column: created_ms, type: unix_ms}
  items: none
  stock: none
  shards: {on: `+on+`, zone: Asia/Shanghai, months: 3}
`)
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: m})
	now := must.Get(s.Now(t.Context()))(t)
	shanghai := must.Get(time.LoadLocation("Asia/Shanghai"))(t)
	for _, months := range []int{-40, -4, 0, 2, 4, 30} {
		month := time.Date(now.In(shanghai).Year(), now.In(shanghai).Month()+time.Month(months), 15, 0, 0, 0, 0, shanghai)
		table := "orders_" + month.Format("200601")
		exec(t, s.DB(), "CREATE TABLE "+table+" (order_no VARCHAR(32) NOT NULL, status INT NOT NULL, created_ms BIGINT NOT NULL, expire_ms BIGINT NULL, "+
			"PRIMARY KEY (order_no))")
		exec(t, s.DB(), "CREATE INDEX due_"+table+" ON "+table+" (status, expire_ms, order_no)")
		exec(t, s.DB(), fmt.Sprintf("INSERT INTO %s (order_no, status, created_ms, expire_ms) VALUES ('open%d', 10, %d, NULL), ('closed%[2]d', 90, %[3]d, %[3]d), "+
			"('asked%[2]d', 90, %[3]d, %[3]d)", table, months, month.UnixMilli()))
	}
	must.Do(t, s.Migrate(t.Context()))
	must.Do(t, s.CheckMapping(t.Context()))
	for _, months := range []int{-40, -4, 0, 2, 4, 30} {
		for what, want := range map[string]callback.Recorded{"open": callback.RecordedPaid, "closed": callback.RecordedLate} {
			got, err := paid(t, s, fmt.Sprint(what, months), "p1")
			expect.That(t, got == want, "payment of the order %s%d: %q, %v; want %q", what, months, got, err, want)
		}
		if n, err := s.RecordLate(t.Context(), []store.LatePayment{{OrderID: fmt.Sprint("asked", months), Source: store.SourceRecheck}}); n != 1 || err != nil {
			t.Errorf("late money of the order asked%d: recorded %d, %v", months, n, err)
		}
	}
	if _, err := paid(t, s, "nobody's", "p1"); !errors.Is(err, callback.ErrNoOrder) {
		t.Error(err)
	}
}

// The fix in the message works, and then a callback of the longest id is no other payment.
func TestCheckMapping_RefusesAColumnThatCutsIDsOfPaymentsOff(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1], closed: [5]}
  due: {column: due, type: unix_ms}
  payment_id: pay_no
  items: none
  stock: none
`)})
		exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT NOT NULL PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, pay_no VARCHAR(32) NULL)")
		exec(t, s.DB(), "CREATE INDEX st ON t_order (state, due, id)")
		now := must.Get(s.Now(t.Context()))(t)
		exec(t, s.DB(), fmt.Sprintf("INSERT INTO t_order (id, state, due) VALUES (1, 0, %d)", now.Add(time.Hour).UnixMilli()))
		broken, ok := errors.AsType[*store.MappingError](s.CheckMapping(t.Context()))
		must.That(t, ok && len(broken.Problems) == 1 && strings.Contains(broken.Error(), "ids of payments have up to 64 bytes"),
			"a column of 32 characters: %v", broken)
		fix := broken.Problems[0].Fix
		exec(t, s.DB(), fix)
		must.Do(t, s.CheckMapping(t.Context()))
		must.Do(t, s.Migrate(t.Context()))
		for _, want := range []callback.Recorded{callback.RecordedPaid, callback.RecordedAlready} {
			got, err := paid(t, s, "1", strings.Repeat("p", orderclose.MaxIDBytes))
			expect.That(t, got == want, "%q, %v; want %q", got, err, want)
		}
	})
}

// TestRecordPayment_IsCountedByItsResult: a payment that is refused leaves no row, so only its count tells of it.
func TestRecordPayment_IsCountedByItsResult(t *testing.T) {
	on(t, func(t *testing.T) {
		dsn, registry := migratedDatabase(t), prometheus.NewRegistry()
		orders := must.Get(sqlclose.New(sqlclose.Options{DSN: dsn, Registerer: registry}))(t)
		defer orders.Close()
		s := openMigrated(t, store.Options{DSN: dsn})
		overdue(t, s, "a")
		for _, p := range []sqlclose.Payment{{OrderID: "a", ID: "p1"}, {OrderID: "a", ID: "p1"}, {OrderID: "a", ID: "p2"},
			{OrderID: "none", ID: "p3"}, {OrderID: "a"}} {
			tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
			if _, err := orders.RecordPayment(t.Context(), orderclose.SQL(tx), p); err != nil {
				must.Do(t, tx.Rollback())
				continue
			}
			must.Do(t, tx.Commit())
		}
		got := map[string]int{}
		for _, m := range must.Get(registry.Gather())(t)[0].Metric {
			got[m.Label[0].GetValue()] = int(m.Counter.GetValue())
		}
		expect.Same(t, got, map[string]int{"paid": 1, "already_paid": 1, "paid_late": 1, "no_order": 1, "bad_payment": 1, "unnamed_status": 0}, "calls")
	}, "mariadb", "postgres")
}

// beforeUpdate creates a trigger of the table orders: on PostgreSQL with an assignment by :=, on MySQL by SET.
func beforeUpdate(t *testing.T, s *store.Store, condition, then string) {
	t.Helper()
	if s.Dialect() == store.Postgres {
		exec(t, s.DB(), "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF "+condition+" THEN "+
			strings.NewReplacer("SET ", "", " = OLD", " := OLD").Replace(then)+"; END IF; RETURN NEW; END $$")
		exec(t, s.DB(), "CREATE TRIGGER keep BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION keep()")
		return
	}
	exec(t, s.DB(), "CREATE TRIGGER keep BEFORE UPDATE ON orders FOR EACH ROW BEGIN IF "+condition+" THEN "+then+"; END IF; END")
}

// A trigger of the shop keeps the old status without an error. The order fails alone, and nothing of it changes.
func TestCloseOrders_ATriggerThatKeepsTheStatusFailsTheOrder(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s := openMigrated(t, store.Options{})
		overdue(t, s, "a", "b", "c")
		beforeUpdate(t, s, "NEW.id = 'a'", "SET NEW.status = OLD.status")
		out := must.Get(bisect.Bisect(t.Context(), s, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}, {OrderID: "b"}, {OrderID: "c"}}))(t)
		if out[0].Verdict != orderclose.Failed || !strings.Contains(out[0].Err.Error(), "a trigger has set another one") ||
			out[1].Verdict != orderclose.Closed || out[2].Verdict != orderclose.Closed {
			t.Errorf("%+v", out)
		}
		for _, c := range []struct{ query, want string }{
			{"SELECT CONCAT(id, ' ', status) FROM orders ORDER BY id", "a 0, b 2, c 2"}, {"SELECT order_id FROM receipts ORDER BY order_id", "b, c"},
			{"SELECT order_id FROM outbox_events ORDER BY order_id", "b, c"}, {"SELECT CONCAT(available, ' ', reserved) FROM stock", "999 1"},
		} {
			got := texts(t, s, c.query)
			expect.That(t, got == c.want, "%s: %s, want %s", c.query, got, c.want)
		}
		if r, err := paid(t, s, "a", "p1"); err == nil {
			t.Errorf("a payment of the order that stays unpaid: %q", r)
		}
		if _, err := s.PayOrders(t.Context(), []orderclose.CloseRequest{{OrderID: "a"}}); err == nil || errors.Is(err, orderclose.ErrUnavailable) {
			t.Errorf("an order that the provider says was paid: %v", err)
		}
	})
}

// A trigger raises an error for one order that otherwise says that the server cannot work.
func TestCloseOrders_AnErrorThatIsRaisedForOneOrderIsThatOrders(t *testing.T) {
	for _, code := range []string{"55000", "0A000", "42883", "42501", "57014", "XX000", "28000", "53400"} {
		t.Run("postgres/"+code, func(t *testing.T) {
			s := openMigrated(t, store.Options{})
			overdue(t, s, "a", "b", "c")
			beforeUpdate(t, s, "NEW.id = 'b'", "RAISE EXCEPTION 'not this order' USING ERRCODE = '"+code+"'")
			oneIsRefused(t, s)
		})
	}
	eachServer(t, func(t *testing.T) {
		s := openMigrated(t, store.Options{})
		overdue(t, s, "a", "b", "c")
		exec(t, s.DB(), "CREATE TABLE gone (id INT)")
		beforeUpdate(t, s, "NEW.id = 'b'", "DELETE FROM gone")
		exec(t, s.DB(), "DROP TABLE gone")
		exec(t, s.DB(), "DROP TRIGGER keep")
		beforeUpdate(t, s, "NEW.id = 'b'", "SIGNAL SQLSTATE '42S02' SET MYSQL_ERRNO = 1146, MESSAGE_TEXT = 'not this order'")
		oneIsRefused(t, s)
	})
}

func oneIsRefused(t *testing.T, s *store.Store) {
	t.Helper()
	out, err := new(bisect.Search).Close(t.Context(), s, orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "a"}, {OrderID: "b"}, {OrderID: "c"}})
	expect.That(t, err == nil && out[0].Verdict == orderclose.Closed && out[1].Verdict == orderclose.Failed && out[2].Verdict == orderclose.Closed,
		"%+v, %v; want that only b fails", out, err)
	exec(t, s.DB(), "DROP TABLE outbox_events") // now no order can be closed
	overdue(t, s, "d")
	if _, err := s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "d"}}); !errors.Is(err, orderclose.ErrNoOrderAtFault) {
		t.Errorf("without a table of the pipeline: %v", err)
	}
}

// Transactions wait until their COMMIT is on disk, in the sessions of the store and in the shop's.
func TestPostgres_TransactionsRaiseSynchronousCommit(t *testing.T) {
	for _, c := range []struct{ set, want string }{{"off", "on"}, {"local", "local"}, {"remote_apply", "remote_apply"}, {"on", "on"}} {
		t.Run("postgres/"+c.set, func(t *testing.T) {
			dsn := migratedDatabase(t)
			first := openMigrated(t, store.Options{DSN: dsn})
			exec(t, first.DB(), "CREATE TABLE seen (value TEXT)")
			exec(t, first.DB(), "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES "+
				"(current_setting('synchronous_commit')); RETURN NEW; END $$")
			exec(t, first.DB(), "CREATE TRIGGER see BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION see()")
			overdue(t, first, "a")
			overdue(t, first, "b")
			exec(t, first.DB(), "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || quote_ident(current_database()) || ' SET synchronous_commit = "+c.set+"'; END $$")
			s := open(t, store.Options{DSN: dsn})
			must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}}))(t)
			shop := closed(t, must.Get(sql.Open("pgx", dsn))(t))
			tx := must.Get(shop.BeginTx(t.Context(), nil))(t)
			must.Get(callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: "b", PaymentID: "p1"}))(t)
			must.Do(t, tx.Commit())
			got := texts(t, s, "SELECT CONCAT(value, ' ', COUNT(*)) FROM seen GROUP BY value")
			expect.That(t, got == c.want+" 3", "synchronous_commit %s: the UPDATEs of a close and of a payment have %s, want %s in all 3", c.set, got, c.want)
		})
	}
}

// On a server that does not write each commit to disk, the doctor says so.
func TestUnsafe_NamesASettingThatLosesCommits(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t)})
		var flush, log, syncs int
		must.Do(t, s.DB().QueryRow("SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog").Scan(&flush, &log, &syncs))
		want := ""
		if flush != 1 {
			want = fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: ", flush)
		} else if log == 1 && syncs != 1 {
			want = fmt.Sprintf("sync_binlog is %d: ", syncs)
		}
		got, err := s.Unsafe(t.Context())
		if must.Do(t, err); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		t.Log(got)
	})
}

// A trial prints a local time as the column holds it. The time of the close is eight hours ahead of UTC, and has no Z.
func TestTryClose_PrintsLocalTimesWithoutAZone(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1], closed: [5]}
  due: {column: due, type: unix_ms}
  closed_at: {column: finish_time, type: datetime, zone: "+08:00", precision: s}
  items: none
  stock: none
`)})
		column := "DATETIME"
		if isPostgres(t) {
			column = "TIMESTAMP(0)"
		}
		exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT NOT NULL PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, finish_time "+column+" NULL)")
		exec(t, s.DB(), "CREATE INDEX st ON t_order (state, due, id)")
		must.Do(t, s.Migrate(t.Context()))
		now := must.Get(s.Now(t.Context()))(t)
		exec(t, s.DB(), fmt.Sprintf("INSERT INTO t_order (id, state, due) VALUES (1, 0, %d)", now.UnixMilli()))
		trial, err := s.TryClose(t.Context())
		want := "finish_time - -> " + now.Add(8*time.Hour).UTC().Format("2006-01-02 15:")
		got := fmt.Sprint(trial.Changes)
		expect.That(t, err == nil && strings.Contains(got, want) && !strings.Contains(got, "Z"), "%s, %v; want %s", got, err, want)
	})
}
