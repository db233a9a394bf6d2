package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var faultPromises = []promise[shop]{
	{name: "OneBadOrderFailsItsBatchAndChangesNothing", test: oneBadOrder, tags: Dialect},
	{name: "OrdersWhoseRowsRefuseThemKeepNoOtherFromClosing", test: refusedOrders, tags: Dialect},
	{name: "OfTooLittleReservedTheFirstOrdersGetTheirPart", test: reservedForSome},
	{name: "LessReservedThanOrderedFails", test: lessReservedThanOrdered},
	{name: "StockThatWasReleasedBeforeFails", test: stockReleasedBefore},
	{name: "ACancelledContextBlamesNoOrder", test: cancelledContext, tags: Dialect},
	{name: "AMissingSchemaBlamesNoOrder", test: withoutSchema, tags: Dialect | Empty},
	{name: "TheStoreWorksAfterACancel", test: worksAfterCancel, tags: Dialect | File},
	{name: "ProbeReportsAFailingDatabaseAndChangesNothing", test: probe, tags: Dialect},
}

// failing checks that closing ids fails with an error of an order, and changes nothing.
func (s *shop) failing(ids ...string) {
	s.Helper()
	before := s.state()
	out, err := s.CloseOrders(s.Context(), orderclose.PathPipeline, requests(ids...))
	expect.That(s, err != nil && !errors.Is(err, orderclose.ErrUnavailable),
		"closing %q: error %v, outcomes %v; want an error that is no ErrUnavailable", ids, err, out)
	want(s, "state after the failed close", s.state(), before)
}

func oneBadOrder(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	s.order("good", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.order("bad", -time.Minute, shopdb.Item{SKU: "nib", Quantity: 2})
	defer s.refuseReceipt("bad")() // no look at the rows shows why
	s.failing("good", "bad")
	s.failing("bad")
	want(t, "verdict of the good order alone", verdicts(s.close("good")), []string{"good closed"})
}

// refuseReceipt creates a trigger that refuses the receipt of an order, and returns what drops it.
func (s *shop) refuseReceipt(id string) (drop func()) {
	s.Helper()
	create := "CREATE TRIGGER refused BEFORE INSERT ON receipts WHEN NEW.order_id = '" + id + "' BEGIN SELECT RAISE(ABORT, 'refused'); END"
	end := "DROP TRIGGER refused"
	switch s.Dialect() {
	case store.MySQL:
		create = "CREATE TRIGGER refused BEFORE INSERT ON receipts FOR EACH ROW BEGIN IF NEW.order_id = '" + id +
			"' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF; END"
	case store.Postgres:
		s.exec("CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.order_id = '" + id + "' THEN RAISE EXCEPTION 'refused'; " +
			"END IF; RETURN NEW; END $$")
		create, end = "CREATE TRIGGER refused BEFORE INSERT ON receipts FOR EACH ROW EXECUTE FUNCTION refused()", "DROP FUNCTION refused CASCADE"
	}
	s.exec(create)
	return func() { s.exec(end) }
}

func lessReservedThanOrdered(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.exec("UPDATE stock SET reserved = 1")
	s.failing("a")
}

func stockReleasedBefore(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.order("b", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	at := s.time(s.now())
	s.exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES ('a', 'closed', ?, ?, 'sweep', 0, 0)", at, at)
	s.failing("a")
	want(t, "verdicts", verdicts(s.close("a", "b")), []string{"a failed", "b closed"})
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
	tx, err := s.DB().BeginTx(ctx, nil)
	s.must(err)
	_, err = tx.ExecContext(ctx, "UPDATE stock SET available = 0")
	s.must(err)
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
	if err := s.Probe(t.Context()); !errors.Is(err, orderclose.ErrUnavailable) {
		t.Errorf("without a table to write to: %v; want ErrUnavailable", err)
	}
}
