package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
)

var closePromises = []promise[shop]{
	{name: "NeverBeforeDue", test: neverBeforeDue, tags: Dialect | Settings},
	{name: "AnOrderThatIsNeverDueIsNeverClosed", test: neverDueNeverClosed, tags: Dialect},
	{name: "ATrialWaitsASecondForALock", test: triedLocked, tags: Dialect},
	{name: "PaidIsNeverClosed", test: paidIsNeverClosed, tags: Settings},
	{name: "ClosingTwiceChangesNothing", test: closingTwiceChangesNothing},
	{name: "StockIsReleasedOncePerSKU", test: stockIsReleasedOncePerSKU, tags: Settings},
	{name: "OrderWithoutLinesCloses", test: orderWithoutLinesCloses, tags: Settings},
	{name: "ReceiptRecordsTheClose", test: receiptRecordsTheClose, tags: Settings},
	{name: "EventDescribesTheClose", test: eventDescribesTheClose, tags: Dialect | Settings},
	{name: "UnknownOrderIsNotFound", test: unknownOrder},
	{name: "IdsCompareExactly", test: idsCompareExactly, tags: Dialect | Settings},
	{name: "RepeatsInOneBatchCloseOnce", test: repeatedInOneBatch},
	{name: "BatchLongerThanAnyList", test: batchLongerThanAnyList, tags: Dialect | Settings},
	{name: "EmptyRequestDoesNothing", test: emptyRequest},
	{name: "AnOrderThatIsOpenedAgainIsNotClosedTwice", test: openedAgain, tags: Settings},
}

// The shop sets the status of a closed order back. The error says what is wrong, for a dead letter.
func openedAgain(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("lines", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1})
	s.order("none", -time.Minute)
	s.close("lines", "none")
	before := s.stock()
	s.exec("UPDATE orders SET status = 0, closed_at = NULL")
	for _, id := range []string{"lines", "none"} {
		_, err := s.CloseOrders(t.Context(), orderclose.PathSweep, requests(id))
		for _, part := range []string{fmt.Sprintf("order %q has a receipt: the path pipeline closed it at 2", id), "give an order that is opened again a new id"} {
			expect.That(t, err != nil && !errors.Is(err, orderclose.ErrUnavailable) && strings.Contains(err.Error(), part),
				"%v; want an error of the order with %q", err, part)
		}
	}
	want(t, "stock", s.stock(), before)
}

// Neither a record nor a sweep closes an order whose due time means never, and nothing counts it as waiting.
func neverDueNeverClosed(t *testing.T, s *shop) {
	s.migrated()
	now := s.now()
	s.must(s.CreateOrder(t.Context(), orderclose.Order{ID: "never", CreatedAt: now, Due: orderclose.NeverDue}, nil))
	s.order("overdue", -time.Minute)
	out := s.close("never")
	want(t, "verdict", verdicts(out), []string{"never not_due"})
	want(t, "its due time means never", orderclose.IsNever(out[0].Due), true)
	want(t, "orders that a sweep finds", s.pages(now.AddDate(200, 0, 0), 10, ignorePage), []string{"overdue"})
	want(t, "its due time in the history", must.Get(s.OrderHistory(t.Context(), "never"))(t).Order.Due, orderclose.NeverDue)
	counts := must.Get(s.CountOrders(t.Context()))(t)
	want(t, "counts", []int64{counts.From, counts.Overdue, counts.Waiting, counts.Never}, []int64{2, 1, 0, 1})
}

// One order for each millisecond around the close, so that one order is due at that very millisecond and one at the next. The test must predict the time
// of the close; if it was wrong, the next try knows better how long inserting takes.
func neverBeforeDue(t *testing.T, s *shop) {
	ring.NotShort(t) // thousands of rows in one statement
	s.migrated()
	const n = 5000
	var lead time.Duration
	for try := range 6 {
		began := s.now()
		first := began.Add(lead - n/2*time.Millisecond)
		ids := s.everyMillisecond(fmt.Sprintf("try%d-%%04d", try), first, n)
		at := s.close(ids...)[0].At
		if i := int(at.Sub(first).Milliseconds()); 0 <= i && i+1 < n {
			s.checkBoundary(ids, i)
			return
		}
		lead = at.Sub(began)
	}
	t.Fatal("no close fell into the span of due times that was prepared for it")
}

func (s *shop) everyMillisecond(format string, first time.Time, n int) (ids []string) {
	s.Helper()
	ids = names(format, n)
	orders := make([]orderclose.Order, n)
	for i, id := range ids {
		orders[i] = orderclose.Order{ID: id, CreatedAt: first, Due: first.Add(time.Duration(i) * time.Millisecond)}
	}
	s.bulk(orders)
	return ids
}

func (s *shop) checkBoundary(ids []string, i int) {
	s.Helper()
	status := func(id string) int { return s.count("SELECT status FROM orders WHERE id = ?", id) }
	want(s, "status of the order due at the millisecond of the close", status(ids[i]), 2)
	want(s, "status of the order due one millisecond later", status(ids[i+1]), 0)
	want(s, "orders of the batch closed", s.count("SELECT COUNT(*) FROM orders WHERE status = 2 AND id >= ?", ids[0]), i+1)
	want(s, "orders closed early", s.count("SELECT COUNT(*) FROM orders WHERE closed_at < expire_at"), 0)
}

// A cancelled order is not closed either.
func paidIsNeverClosed(t *testing.T, s *shop) {
	s.migrated("ink")
	for _, id := range []string{"paid", "cancelled"} {
		s.order(id, -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	}
	want(t, "answer to the payment", s.answer(s.Pay(t.Context(), "paid", "p")), shopdb.AnswerPaid)
	s.answer(s.Cancel(t.Context(), "cancelled"))
	before := s.state()
	want(t, "verdict", verdicts(s.close("paid")), []string{"paid already_paid"})
	want(t, "verdict", verdicts(s.close("cancelled")), []string{"cancelled already_closed"})
	want(t, "state after the closes", s.state(), before)
}

func closingTwiceChangesNothing(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	want(t, "first verdict", verdicts(s.close("a")), []string{"a closed"})
	before := s.state()
	want(t, "second verdict", verdicts(s.close("a")), []string{"a already_closed"})
	want(t, "state after the second close", s.state(), before)
}

func stockIsReleasedOncePerSKU(t *testing.T, s *shop) {
	s.migrated("ink", "nib", "pad")
	s.order("a", -time.Minute, shopdb.Item{SKU: "nib", Quantity: 1}, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "nib", Quantity: 4})
	s.order("b", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 7})
	s.order("c", time.Hour, shopdb.Item{SKU: "pad", Quantity: 3})
	want(t, "stock while reserved", s.stock(), []string{"ink 991 9", "nib 995 5", "pad 997 3"})

	want(t, "verdicts", verdicts(s.close("c", "b", "a")), []string{"c not_due", "b closed", "a closed"})
	want(t, "stock after the close", s.stock(), []string{"ink 1000 0", "nib 1000 0", "pad 997 3"})
	want(t, "ledger", s.ledger(), []string{"a ink close 2", "a nib close 5", "b ink close 7"})
}

func orderWithoutLinesCloses(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})
	want(t, "ledger", s.ledger(), nil)
}

func receiptRecordsTheClose(t *testing.T, s *shop) {
	s.migrated("ink")
	o := s.order("a", -90*time.Second, shopdb.Item{SKU: "ink", Quantity: 1})
	out := must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "a", Attempt: 2}}))(t)
	want(t, "due in the outcome", out[0].Due, o.Due)
	late := -out[0].Remaining()
	expect.That(t, late >= 90*time.Second && late <= 2*time.Minute, "the order was closed %v late; it was due 90s before it was created", late)
	want(t, "receipts that fit", s.count("SELECT COUNT(*) FROM receipts WHERE order_id = 'a' AND verdict = 'closed'"+
		" AND path = 'sweep' AND attempts = 2 AND due = ? AND closed_at = ? AND lateness_ms = ?",
		s.time(o.Due), s.time(out[0].At), out[0].At.Sub(o.Due).Milliseconds()), 1)
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), 1)
	want(t, "orders that fit", s.count("SELECT COUNT(*) FROM orders WHERE status = 2 AND version = 2 AND paid_at IS NULL AND closed_at = ?",
		s.time(out[0].At)), 1)
}

func eventDescribesTheClose(t *testing.T, s *shop) {
	s.migrated("ink", "pen")
	o := s.order("a", -time.Minute, shopdb.Item{SKU: "pen", Quantity: 1}, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "pen", Quantity: 3})
	s.order("b", time.Hour)
	out := must.Get(s.CloseOrders(t.Context(), orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: "b"}, {OrderID: "a", Attempt: 1}}))(t)
	s.close("a", "b")
	payloads := s.texts("SELECT payload FROM outbox_events WHERE order_id = 'a'")
	want(t, "events of the order", len(payloads), 1)
	want(t, "events", s.count("SELECT COUNT(*) FROM outbox_events"), 1)
	_, got, err := orderclose.DecodeOrderClosed(store.ExpandEvent("a", []byte(payloads[0])))
	s.must(err)
	want(t, "event", got, orderclose.OrderClosed{
		OrderID: "a", Category: o.Category, Due: o.Due, ClosedAt: out[1].At, Path: orderclose.PathTouch, Attempts: 1, Version: 2,
		Release: []orderclose.Release{
			{SKU: "ink", Quantity: 2, Key: wire.ReleaseKey("a", "ink", "close")},
			{SKU: "pen", Quantity: 4, Key: wire.ReleaseKey("a", "pen", "close")},
		},
	})
}

func unknownOrder(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	out := s.close("x", "", "a", "bad\x00id", "bad\xffutf8", string(make([]byte, 100)))
	want(t, "verdicts", verdicts(out)[:3], []string{"x not_found", " not_found", "a closed"})
	for _, o := range out {
		expect.That(t, o.Verdict == orderclose.Closed || o.Verdict == orderclose.NotFound && o.Due.IsZero(),
			"order %q: %v, due %v; want it not found and no due time", o.OrderID, o.Verdict, o.Due)
	}
	alone := s.close("x")
	if d := s.now().Sub(alone[0].At); d < 0 || d > time.Minute {
		t.Errorf("an unknown order alone was answered at %v by the database's clock, %v before now", alone[0].At, d)
	}
}

func idsCompareExactly(t *testing.T, s *shop) {
	s.migrated()
	ids := []string{"A1", "a1", "á1", "ａ1", "1e0", "1", "01", "o'1", `o\1`, "o%1", "订单-1", "🧾"}
	s.overdueOrders(ids...)
	for _, id := range ids {
		want(t, "verdict", verdicts(s.close(id, id+" ", " "+id)), []string{id + " closed", id + "  not_found", " " + id + " not_found"})
	}
}

func repeatedInOneBatch(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.order("b", time.Hour)
	want(t, "verdicts", verdicts(s.close("a", "b", "a", "x", "b", "a", "x")), []string{
		"a closed", "b not_due", "a already_closed", "x not_found", "b not_due", "a already_closed", "x not_found"})
	want(t, "stock", s.stock(), []string{"ink 1000 0"})
	want(t, "ledger", s.ledger(), []string{"a ink close 2"})
}

func batchLongerThanAnyList(t *testing.T, s *shop) {
	ring.NotShort(t) // thousands of rows in one statement
	s.migrated()
	ids := names("o%04d", 1200)
	orders := make([]orderclose.Order, len(ids))
	due := s.now().Add(-time.Minute)
	for i, id := range ids {
		orders[i] = orderclose.Order{ID: id, CreatedAt: due.Add(-time.Minute), Due: due}
	}
	s.bulk(orders)
	s.exec("INSERT INTO stock SELECT REPLACE(id, 'o', 'sku'), 0, 3 FROM orders") // one SKU for each order, so that there are many SKUs too
	s.exec("INSERT INTO order_items SELECT id, 1, REPLACE(id, 'o', 'sku'), 3 FROM orders")

	if !s.lacks(rowLocks) { // a server that reads all lines, because the list is too long for it, meets this lock
		s.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('x', 1, 'ink', 1)")
		tx := s.change("SELECT quantity FROM order_items WHERE order_id = 'x' FOR UPDATE")
		defer func() { s.must(tx.Rollback()) }()
	}
	slices.Reverse(ids)
	out := s.close(ids...)
	for i, o := range out {
		must.That(t, o.OrderID == ids[i] && o.Verdict == orderclose.Closed && o.At.Equal(out[0].At),
			"outcome %d is %+v; want %s closed at %v", i, o, ids[i], out[0].At)
	}
	want(t, "SKUs released", s.count("SELECT COUNT(*) FROM stock WHERE available = 3 AND reserved = 0"), len(ids))
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), len(ids))
}

func emptyRequest(t *testing.T, s *shop) {
	out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, nil) // the database has no schema yet
	s.must(err)
	want(t, "outcomes", out, nil)
}
