package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var faultPromises = []promise[shop]{
	{name: "OneBadOrderFailsItsBatchAndChangesNothing", test: oneBadOrder, tags: Dialect},
	{name: "OrdersWhoseRowsRefuseThemKeepNoOtherFromClosing", test: refusedOrders, tags: Dialect},
	{name: "ALaterTriggerChangesNoOutcomeInSilence", test: laterTrigger, tags: Dialect},
	{name: "OfTooLittleReservedTheFirstOrdersGetTheirPart", test: reservedForSome},
	{name: "ACancelledContextBlamesNoOrder", test: cancelledContext, tags: Dialect},
	{name: "AMissingSchemaBlamesNoOrder", test: withoutSchema, tags: Dialect | Empty},
	{name: "TheStoreWorksAfterACancel", test: worksAfterCancel, tags: Dialect | File},
	{name: "ProbeReportsAFailingDatabaseAndChangesNothing", test: probe, tags: Dialect},
}

func oneBadOrder(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	s.order("good", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.order("bad", -time.Minute, shopdb.Item{SKU: "nib", Quantity: 2})
	defer s.refuseReceipt("bad")() // no look at the rows shows why
	before := s.state()
	for _, ids := range [][]string{{"good", "bad"}, {"bad"}} {
		out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, requests(ids...))
		expect.That(t, err != nil && !errors.Is(err, orderclose.ErrUnavailable),
			"closing %q: error %v, outcomes %v; want an error that is no ErrUnavailable", ids, err, out)
		want(t, "state after the failed close", s.state(), before)
	}
	want(t, "verdict of the good order alone", verdicts(s.close("good")), []string{"good closed"})
}

// trigger creates a trigger, and returns what drops it. head is when it fires, body what it does for each row.
func (s *shop) trigger(head, body string) (drop func()) {
	s.Helper()
	end := "DROP TRIGGER planted"
	switch s.Dialect() {
	case store.MySQL:
		s.exec("CREATE TRIGGER planted " + head + " FOR EACH ROW " + body)
	case store.Postgres:
		if strings.HasPrefix(head, "RULE") {
			s.exec("CREATE " + head + " DO INSTEAD " + body)
			return func() { s.exec("DROP RULE planted ON stock") }
		}
		kind := "TRIGGER"
		if strings.Contains(head, "DEFERRABLE") {
			kind = "CONSTRAINT TRIGGER"
		}
		s.exec("CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + body + "; RETURN NEW; END $$")
		s.exec("CREATE " + kind + " planted " + head + " FOR EACH ROW EXECUTE FUNCTION planted()")
		end = "DROP FUNCTION planted CASCADE"
	case store.SQLite:
		s.exec("CREATE TRIGGER planted " + head + " BEGIN " + body + "; END")
	}
	return func() { s.exec(end) }
}

// refuseReceipt creates a trigger that refuses the receipt of an order, and returns what drops it.
func (s *shop) refuseReceipt(id string) (drop func()) {
	s.Helper()
	is := "NEW.order_id = '" + id + "'"
	return s.trigger("BEFORE INSERT ON receipts", map[store.DialectName]string{
		store.MySQL:    "BEGIN IF " + is + " THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF; END",
		store.Postgres: "IF " + is + " THEN RAISE EXCEPTION 'refused'; END IF",
		store.SQLite:   "SELECT RAISE(ABORT, 'refused') WHERE " + is,
	}[s.Dialect()])
}

// laterTriggers are triggers that change what a close has written, and what the close says.
var laterTriggers = map[store.DialectName][]struct{ head, body, says string }{
	store.MySQL: {
		{"BEFORE UPDATE ON orders", "SET NEW.status = OLD.status", keeps},
		{"AFTER INSERT ON outbox_events", "UPDATE orders SET status = 0 WHERE id = NEW.order_id", keeps},
		{"BEFORE UPDATE ON stock", "SET NEW.available = LEAST(NEW.available, 997)", caps},
		{"BEFORE UPDATE ON stock", "SET NEW.reserved = OLD.reserved", caps},
		{"BEFORE UPDATE ON stock", "SET NEW.available = NEW.available + IF(NEW.sku_id = 'ink', 1, -1)", caps},
	},
	store.Postgres: {
		{"BEFORE UPDATE ON orders", "NEW.status := OLD.status", keeps},
		{"AFTER UPDATE ON orders", "UPDATE orders SET status = 0 WHERE id = NEW.id AND status <> 0", keeps},
		{"AFTER INSERT ON outbox_events", "UPDATE orders SET status = 0 WHERE id = NEW.order_id", keeps},
		{"AFTER INSERT ON outbox_events DEFERRABLE INITIALLY DEFERRED", "UPDATE orders SET status = 0 WHERE id = NEW.order_id", keeps},
		{"AFTER UPDATE ON copies", "UPDATE orders SET status = 0 WHERE id = NEW.id AND status <> 0", keeps},
		{"BEFORE UPDATE ON stock", "NEW.available := LEAST(NEW.available, 997)", caps},
		{"BEFORE UPDATE ON stock", "NEW.available := NEW.available + CASE NEW.sku_id WHEN 'ink' THEN 1 ELSE -1 END", caps},
		{"AFTER UPDATE ON stock DEFERRABLE INITIALLY DEFERRED", "UPDATE stock SET available = 900 WHERE available > 900", caps},
		{"BEFORE UPDATE ON stock_part", "NEW.available := LEAST(NEW.available, 997)", caps},
		{"RULE planted AS ON UPDATE TO stock", "UPDATE stock_part SET available = LEAST(NEW.available, 997) WHERE sku_id = NEW.sku_id", caps},
	},
	store.SQLite: {
		{"AFTER UPDATE ON orders WHEN NEW.status <> 0", "UPDATE orders SET status = 0 WHERE id = NEW.id", keeps},
		{"AFTER INSERT ON outbox_events", "UPDATE orders SET status = 0 WHERE id = NEW.order_id", keeps},
		{"AFTER UPDATE ON stock WHEN NEW.available > 997", "UPDATE stock SET available = 997 WHERE sku_id = NEW.sku_id",
			`the stock of SKU "ink" came back to table stock, -2 are available and +0 reserved beside what the lines hold: ` + caps},
	},
}

const keeps, caps = "orders do not have the status 2", "a trigger has changed it"

// A trigger of the shop is created while a closer runs. Whatever statement fires it, it changes no outcome in silence. On PostgreSQL it may
// run in the commit. A trial and a payment see what it did too.
func laterTrigger(t *testing.T, s *shop) {
	s.migrated("ink", "pen")
	closes := func(id string) error {
		return expect.Err(s.CloseOrders(t.Context(), orderclose.PathPipeline, requests(id)))
	}
	for i, c := range laterTriggers[s.Dialect()] {
		what := c.head + ": " + c.body
		before, beside, paid := fmt.Sprint("before", i), fmt.Sprint("beside", i), fmt.Sprint("paid", i)
		if strings.HasSuffix(c.head, "stock_part") { // its rows are those of stock too
			s.exec("CREATE TABLE stock_part () INHERITS (stock)")
			s.exec("WITH moved AS (DELETE FROM ONLY stock RETURNING *) INSERT INTO stock_part SELECT * FROM moved")
		}
		if strings.HasSuffix(c.head, "copies") {
			s.exec("ALTER TABLE orders ADD UNIQUE (id, status)")
			s.exec("CREATE TABLE copies (id VARCHAR(255), status INT, FOREIGN KEY (id, status) REFERENCES orders (id, status) ON UPDATE CASCADE)")
		}
		s.exec("UPDATE stock SET available = 1000, reserved = 0")
		for _, id := range []string{before, beside, paid} {
			s.order(id, -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1}, shopdb.Item{SKU: "pen", Quantity: 1})
		}
		if strings.HasSuffix(c.head, "copies") {
			s.exec("INSERT INTO copies SELECT id, status FROM orders")
		}
		s.must(closes(before))
		drop := s.trigger(c.head, c.body)
		expect.Says(t, closes(beside), c.says, "a close with %s", what)
		if !s.lacks(trials) {
			expect.Says(t, expect.Err(s.tryClose()), c.says, "a trial with %s", what)
		}
		_, err := s.PayOrders(t.Context(), requests(paid))
		expect.That(t, (err == nil) == (c.says != keeps), "paid by asking with %s: %v", what, err)
		want(t, "stock with "+what, s.stock(), []string{"ink 998 2", "pen 998 2"})
		drop()
		s.must(closes(beside))
	}
	s.order("free", -time.Minute)
	defer s.trigger("AFTER UPDATE ON orders", "UPDATE stock SET available = available WHERE 1 = 0")()
	s.must(closes("free"))
}

// wantFailed checks that orders with a cause are Failed in a batch as alone, and that the others are closed.
func (s *shop) wantFailed(out []orderclose.Outcome, causes map[string]orderclose.FailureCause) {
	s.Helper()
	for _, o := range out {
		if causes[o.OrderID] == "" {
			want(s, "verdict of "+o.OrderID, o.Verdict, orderclose.Closed)
			continue
		}
		_, alone := s.CloseOrders(s.Context(), orderclose.PathPipeline, requests(o.OrderID))
		why, _ := o.Why()
		if o.Verdict != orderclose.Failed || why != causes[o.OrderID] || alone == nil || o.Err.Error() != alone.Error() || o.Due.IsZero() || o.At.IsZero() {
			s.Errorf("%+v, by the cause %s; alone: %v", o, why, alone)
		}
	}
}

func refusedOrders(t *testing.T, s *shop) {
	s.migrated("ink", "nib", "pad")
	for id, sku := range map[string]string{"a": "ink", "b": "nib", "c": "pad", "d": "ink", "e": "ink"} {
		s.order(id, -time.Minute, shopdb.Item{SKU: sku, Quantity: 2}, shopdb.Item{SKU: "ink", Quantity: 1})
	}
	s.order("later", time.Hour, shopdb.Item{SKU: "nib", Quantity: 2})
	s.order("paid", -time.Minute, shopdb.Item{SKU: "nib", Quantity: 2})
	s.answer(s.Pay(t.Context(), "paid", "p"))
	s.exec("DELETE FROM stock WHERE sku_id = 'nib'")
	s.exec("UPDATE stock SET reserved = 1 WHERE sku_id = 'pad'")
	at := s.time(s.now())
	s.exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES ('d', 'closed', ?, ?, 'sweep', 0, 0)", at, at)
	out := s.close("a", "b", "c", "d", "e", "later", "paid", "gone", "b")
	want(t, "verdicts", verdicts(out), []string{"a closed", "b failed", "c failed", "d failed", "e closed", "later not_due", "paid already_paid",
		"gone not_found", "b failed"})
	s.wantFailed(out[:5], map[string]orderclose.FailureCause{"b": orderclose.StockRowMissing, "c": orderclose.ReservedTooLow, "d": orderclose.ClosedBefore})
	want(t, "receipts", s.texts("SELECT order_id FROM receipts ORDER BY order_id"), []string{"a", "d", "e"})
	want(t, "stock", s.stock(), []string{"ink 995 5", "pad 998 1"})
	want(t, "verdicts, again", verdicts(s.close("b", "c", "d")), []string{"b failed", "c failed", "d failed"})
}

func reservedForSome(t *testing.T, s *shop) {
	s.migrated("ink")
	for _, id := range []string{"a", "b", "c", "d"} {
		s.order(id, -time.Minute, shopdb.Item{SKU: "ink", Quantity: map[string]int64{"a": 3, "b": 4, "c": 2, "d": 1}[id]})
	}
	s.exec("UPDATE stock SET reserved = 6")
	out := s.close("a", "b", "c", "d")
	want(t, "verdicts", verdicts(out), []string{"a closed", "b failed", "c closed", "d closed"})
	why, detail := out[1].Why()
	want(t, "cause", why, orderclose.ReservedTooLow)
	want(t, "detail", strings.Contains(detail, "is 3, and the order holds 4"), true)
}

func cancelledContext(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	before := s.state()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, closing := s.CloseOrders(ctx, orderclose.PathPipeline, requests("a"))
	_, paging := s.Overdue(ctx, s.now(), orderclose.Order{}, 10)
	_, paying := s.Pay(ctx, "a", "p")
	for _, err := range []error{closing, paging, paying} {
		expect.That(t, errors.Is(err, context.Canceled) && errors.Is(err, orderclose.ErrUnavailable),
			"with a cancelled context: %v; want context.Canceled and ErrUnavailable", err)
	}
	want(t, "state", s.state(), before)
}

func withoutSchema(t *testing.T, s *shop) {
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, requests("a"))
	expect.That(t, (s.Dialect() != store.MySQL || errors.Is(err, orderclose.ErrUnavailable)) && err != nil,
		"closing without tables: %v; want an error that blames no order", err)
}

// A transaction that is cancelled half-way costs its connection. The database must survive it, also in memory.
func worksAfterCancel(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	ctx, cancel := context.WithCancel(t.Context())
	tx := must.Get(s.DB().BeginTx(ctx, nil))(t)
	must.Get(tx.ExecContext(ctx, "UPDATE stock SET available = 0"))(t)
	cancel()
	_ = tx.Rollback() // it may be rolled back already
	want(t, "stock", s.stock(), []string{"ink 998 2"})
	want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})
}

// Many probes run at once, as of closers whose orders fail. Orders stay as they are, and a database that accepts no writes is reported.
func probe(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	before := s.state()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				expect.NoError(t, s.Probe(t.Context()))
			}
		})
	}
	wg.Wait()
	want(t, "state", s.state(), before)
	s.exec("DROP TABLE receipts")
	err := s.Probe(t.Context())
	expect.That(t, errors.Is(err, orderclose.ErrUnavailable), "without a table to write to: %v; want ErrUnavailable", err)
}
