package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// trialSays tries a close, and checks that the error contains a text; empty: that the close succeeds.
func trialSays(t *testing.T, s *store.Store, refused bool, said string) {
	t.Helper()
	var trial store.Trial
	var err error
	storetest.Await(t, "a trial within its limit", func() (string, bool) {
		trial, err = s.TryClose(t.Context())
		return fmt.Sprint(err), err == nil || !strings.Contains(err.Error(), "it took longer than")
	})
	if said == "" {
		expect.That(t, err == nil && trial.OrderID != "", "%+v, %v; want a close", trial, err)
		return
	}
	expect.That(t, err != nil && errors.Is(err, store.ErrNoTrial) == refused && strings.Contains(err.Error(), said), "%+v, %v; want %q", trial, err, said)
}

// A trial fires the triggers of a close, also those that this user may not see, and leaves nothing behind.
func TestMySQL_ATrialFiresTriggersAndLeavesNothing(t *testing.T) { eachServer(t, trialWithTriggers) }

func trialWithTriggers(t *testing.T) {
	dsn, shop := ownDatabase(t), examples(t)[0]
	s := openShop(t, dsn, shop, "CREATE TABLE log (id INT) ENGINE = InnoDB",
		"INSERT INTO t_order (id, state, create_time, pay_deadline) VALUES (1, 'WAIT_PAY', '2026-01-01', '2036-01-01')",
		"INSERT INTO t_order_line (order_id, goods_id, num) VALUES (1, 10, 2)", "INSERT INTO t_goods_stock VALUES (10, 5, 5)")
	trialSays(t, s, false, "")
	exec(t, s.DB(), "CREATE TRIGGER watch AFTER UPDATE ON t_order FOR EACH ROW INSERT INTO log VALUES (NEW.id)")
	trialSays(t, s, false, "")
	trialSays(t, open(t, store.Options{DSN: asUserOf(t, s, dsn, shop), Orders: shop.Mapping}), false, "")
	exec(t, s.DB(), "DROP TRIGGER watch")
	exec(t, s.DB(), "CREATE TRIGGER watch AFTER UPDATE ON t_order FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no close on Sundays'")
	trialSays(t, s, false, "orders.status: closing order \"1\" fails: refused_by_trigger: mark as closed: Error 1644 (45000): no close on Sundays")
	exec(t, s.DB(), "DROP TRIGGER watch")
	exec(t, s.DB(), "CREATE TRIGGER watch AFTER UPDATE ON t_order FOR EACH ROW UPDATE t_goods_stock SET free = free + 2")
	trialSays(t, s, false, "orders.stock: closing order \"1\" fails: refused_by_trigger: after the stock of SKU \"10\" came back")
	exec(t, s.DB(), "DROP TRIGGER watch")
	exec(t, s.DB(), "UPDATE t_order_line SET num = -1")
	trialSays(t, s, false, "orders.items: closing order \"1\" fails: lines_wrong: order \"1\" holds -1 of SKU \"10\"")
	got := texts(t, s, "SELECT state FROM t_order UNION ALL SELECT CONCAT(free, '') FROM t_goods_stock UNION ALL SELECT id FROM log")
	expect.That(t, got == "5, WAIT_PAY", "trials left %s", got)
	exec(t, s.DB(), "UPDATE t_order_line SET num = 2")
	reader, change := newUser(t, s, dsn)
	change("GRANT", "SELECT ON *")
	trialSays(t, open(t, store.Options{DSN: reader, Orders: shop.Mapping}), true, "this user may not close orders")
}

func TestPostgres_ATrialFiresTriggersAndLeavesNothing(t *testing.T) {
	onPostgres(t, trialWithTriggersOfPostgres)
}

func trialWithTriggersOfPostgres(t *testing.T) {
	shop := postgresShops(t)[1]
	s := openShop(t, ownDatabase(t), shop, "INSERT INTO shop.orders (id, status, placed, pay_until) VALUES (1, 'unpaid', '2026-01-02', '2036-01-02')",
		"CREATE FUNCTION inside() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE shop.coupons SET used = 0 WHERE order_id = NEW.id; RETURN NEW; END $$",
		"CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no close on Sundays'; END $$")
	trialSays(t, s, false, "")
	for function, said := range map[string]string{
		"inside": "",
		"broken": "orders.status: closing order \"1\" fails: refused_by_trigger: mark as closed: ERROR: no close on Sundays",
	} {
		exec(t, s.DB(), "CREATE TRIGGER watch BEFORE UPDATE ON shop.orders FOR EACH ROW EXECUTE FUNCTION "+function+"()")
		trialSays(t, s, false, said)
		exec(t, s.DB(), "DROP TRIGGER watch ON shop.orders")
	}
	expect.Equal(t, texts(t, s, "SELECT status FROM shop.orders"), "unpaid", "trials left")
}

// Commands limit each SELECT in the server, and the question which rows are held locks them.
func TestWhyOpen_NamesAHeldRowWithALimitInTheServer(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t)})
		must.Do(t, s.Migrate(t.Context()))
		for _, statement := range []string{
			"INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 0, 2)",
			"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('waits', 1, 'ink', 2)",
			"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('waits', '', 0, '2026-01-01', '2026-01-02', 1)",
		} {
			exec(t, s.DB(), statement)
		}
		tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
		defer func() { _ = tx.Rollback() }()
		must.Get(tx.ExecContext(t.Context(), "SELECT * FROM stock FOR UPDATE"))(t)
		due := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
		o, err := s.WhyOpen(store.Limited(t.Context(), time.Minute), orderclose.CloseRequest{OrderID: "waits", Due: due}, true)
		must.Do(t, err)
		expect.Says(t, o.Err, `another transaction locks SKU "ink" in table stock`, "why it is open")
	})
}
