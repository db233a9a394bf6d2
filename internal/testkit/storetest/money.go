package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// moneyPromises are about payments that the provider tells again, or that come when nobody waits for them.
var moneyPromises = []promise[shop]{
	{name: "ARepeatedCallbackOfTheMoneyThatPaidIsNeverLate", test: repeatedAfterRefund},
	{name: "TheMoneyOfAnOrderThatWasMarkedAsPaidIsAQuestion", test: callbackAfterAsking},
	{name: "EachPaymentOfAnOrderHasARowOfItsOwn", test: twoPaymentsOfAnOrder, tags: Settings},
	{name: "AReopenedPaymentPaidTheOrder", test: reopenedPayment},
	{name: "AnAuditFindsClosesByTheirReceipts", test: auditByReceipts, tags: Dialect | Settings},
	{name: "AnAmountThatBecomesKnownIsAdded", test: amountBecomesKnown},
}

// The shop refunds a paid order and cancels it. The provider repeats the callback of the payment that paid the order.
func repeatedAfterRefund(t *testing.T, s *shop) {
	s.migrated()
	s.overdueOrders("refunded", "unnamed", "early", "reopened", "open")
	want(t, "payment", s.record("refunded", "p1"), callback.RecordedPaid)
	want(t, "payment", s.record("unnamed", "p1"), callback.RecordedPaid)
	s.exec("UPDATE orders SET status = 3 WHERE id = 'refunded'")
	s.exec("UPDATE orders SET status = 77 WHERE id = 'unnamed'")
	for range 2 {
		want(t, "again, after the refund", s.record("refunded", "p1"), callback.RecordedAlready)
		want(t, "again, in a state that the mapping does not name", s.record("unnamed", "p1"), callback.RecordedAlready)
	}
	want(t, "late payments", s.late(), nil)
	want(t, "another payment", s.record("refunded", "p2"), callback.RecordedLate)

	// A shop writes the id before the payment. The order is closed, and then the money comes.
	s.exec("UPDATE orders SET payment_id = 'p1' WHERE id IN ('early', 'reopened', 'open')")
	s.close("early", "reopened")
	s.exec("UPDATE orders SET status = 1 WHERE id = 'reopened'")
	want(t, "of an open order", s.record("open", "p1"), callback.RecordedPaid)
	for range 2 {
		want(t, "of an open order, again", s.record("open", "p1"), callback.RecordedAlready)
		want(t, "of a closed order", s.record("early", "p1"), callback.RecordedLate)
		want(t, "of an order that the shop has reopened", s.record("reopened", "p1"), callback.RecordedAlready)
	}
	want(t, "late payments", s.late(), []string{"early p1 1250 EUR same_id ", "refunded p2 1250 EUR callback "})
	want(t, "events", s.lateEvents(), []string{
		`order.paid_late/8:refunded/p2 {"amount":1250,"currency":"EUR","order_id":"refunded","payment_id":"p2","source":"callback"}`,
		`order.paid_late/5:early/p1 {"amount":1250,"currency":"EUR","order_id":"early","payment_id":"p1","source":"same_id"}`,
	})
}

// The provider is asked before the close, and has money. The shop gives it back and cancels, archives or ships the order. Then the first callbacks come.
func callbackAfterAsking(t *testing.T, s *shop) {
	s.migrated()
	ids := []string{"refunded", "archived", "shipped"}
	for _, id := range ids {
		s.order(id, -time.Minute)
		must.Get(s.PayOrders(t.Context(), []orderclose.CloseRequest{{OrderID: id}}))(t)
	}
	s.exec("UPDATE orders SET status = 3 WHERE id = 'refunded'")
	s.exec("UPDATE orders SET status = 4 WHERE id = 'shipped'")
	s.exec("DELETE FROM orders WHERE id = 'archived'")
	for range 2 {
		for _, id := range ids[:2] {
			want(t, "first callback of "+id, s.record(id, "p1"), callback.RecordedLate)
			want(t, "second payment of "+id, s.record(id, "p2"), callback.RecordedLate)
		}
		want(t, "of a paid order", s.record("shipped", "p1"), callback.RecordedAlready)
	}
	want(t, "second payment of a paid order", s.record("shipped", "p2"), callback.RecordedLate)
	want(t, "late payments", s.late(), []string{"archived p1 1250 EUR same_id ", "archived p2 1250 EUR same_id ", "refunded p1 1250 EUR same_id ",
		"refunded p2 1250 EUR same_id ", "shipped p2 1250 EUR same_id "})
}

// Two pages of one order are paid after its close. The first callback is lost, and a recheck finds its money without an id.
func twoPaymentsOfAnOrder(t *testing.T, s *shop) {
	s.migrated()
	ids := []string{"a", "b", "c"}
	var asked []store.LatePayment
	for _, id := range ids {
		s.order(id, -time.Minute)
		asked = append(asked, store.LatePayment{OrderID: id, Source: store.SourceRecheck})
	}
	s.close(ids...)
	want(t, "recorded", must.Get(s.RecordLate(t.Context(), asked))(t), 3)
	must.Get(s.ResolveLate(t.Context(), s.rowOf("b", "").ID, store.Refunded, "ann"))(t)
	for range 2 {
		want(t, "callback", s.record("a", "p2"), callback.RecordedLate)
		want(t, "callback", s.record("b", "p2"), callback.RecordedLate)
	}
	want(t, "recorded again, by the next step of the recheck", must.Get(s.RecordLate(t.Context(), asked))(t), 0)
	want(t, "late payments", s.late(), []string{"a  -  recheck ", "a p2 1250 EUR same_id ", "b  -  recheck refunded", "b p2 1250 EUR same_id ",
		"c  -  recheck "})
	want(t, "events", len(s.lateEvents()), 5)

	sum := must.Get(s.CountLate(t.Context()))(t)
	want(t, "unresolved, a once", sum, store.LateSummary{Unresolved: 3, Oldest: s.rowOf("a", "").FoundAt})
	same := map[string]bool{}
	for _, p := range s.rows() {
		for _, other := range p.PerhapsSame {
			same[fmt.Sprint(p.ID, " ", other)] = true
		}
	}
	one, two, decided, later := s.rowOf("a", ""), s.rowOf("a", "p2"), s.rowOf("b", ""), s.rowOf("b", "p2")
	want(t, "perhaps the same money", same, map[string]bool{fmt.Sprint(one.ID, " ", two.ID): true, fmt.Sprint(two.ID, " ", one.ID): true,
		fmt.Sprint(later.ID, " ", decided.ID): true})
	want(t, "history", must.Get(s.OrderHistory(t.Context(), "a"))(t).LatePayments, []store.LatePayment{one, two})
	must.Get(s.ResolveLate(t.Context(), two.ID, store.Refunded, "ann"))(t)
	want(t, "the other one", s.rowOf("a", "").PerhapsSame, []int64{two.ID})
	sum = must.Get(s.CountLate(t.Context()))(t)
	want(t, "unresolved", sum.Unresolved, int64(3))
}

// rows returns all late payments.
func (s *shop) rows() []store.LatePayment {
	s.Helper()
	return must.Get(s.LatePayments(s.Context(), true, 1000))(s)
}

// rowOf returns the late payment of an order and a payment.
func (s *shop) rowOf(order, payment string) store.LatePayment {
	s.Helper()
	for _, p := range s.rows() {
		if p.OrderID == order && p.PaymentID == payment {
			return p
		}
	}
	s.Fatalf("no late payment %q of %s", payment, order)
	return store.LatePayment{}
}

// The first payment of a closed order was late, and an operator has reopened the order for it. The shop marks it as paid.
func reopenedPayment(t *testing.T, s *shop) {
	s.migrated()
	s.overdueOrders("told", "callback", "unknown", "gift")
	s.close("told", "callback", "unknown")
	for _, id := range []string{"told", "callback"} {
		want(t, "late", s.record(id, "p1"), callback.RecordedLate)
		want(t, "late", s.record(id, "p3"), callback.RecordedLate)
		must.Get(s.ResolveLate(t.Context(), s.rowOf(id, "p1").ID, store.Reopened, "ann"))(t)
	}
	must.Get(s.RecordLate(t.Context(), []store.LatePayment{{OrderID: "unknown", Source: store.SourceRecheck}}))(t)
	must.Get(s.ResolveLate(t.Context(), s.rowOf("unknown", "").ID, store.Reopened, "ann"))(t)
	s.exec("UPDATE orders SET status = 1")
	for range 2 {
		want(t, "a second payment", s.record("told", "p2"), callback.RecordedLate)
		want(t, "a late payment that nobody has resolved", s.record("callback", "p3"), callback.RecordedLate)
		want(t, "the payment that paid", s.record("callback", "p1"), callback.RecordedAlready)
		want(t, "the first id of an order that was reopened for money without one", s.record("unknown", "p1"), callback.RecordedLate)
		want(t, "the first id of an order that the shop has marked", s.record("gift", "p1"), callback.RecordedAlready)
	}
	want(t, "late payments", s.late(), []string{"callback p1 1250 EUR callback reopened", "callback p3 1250 EUR callback ",
		"told p1 1250 EUR callback reopened", "told p3 1250 EUR callback ", "told p2 1250 EUR same_id ", "unknown  -  recheck reopened",
		"unknown p1 1250 EUR same_id "})
	want(t, "orders", s.texts("SELECT CONCAT_WS(' ', id, COALESCE(payment_id, '-')) FROM orders ORDER BY id"), []string{"callback p1",
		"gift p1", "told -", "unknown -"})
}

// The first callback does not know the amount. Another amount of the same id changes nothing.
func amountBecomesKnown(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	s.close("a")
	for _, p := range []store.LatePayment{
		{PaymentID: "p1"}, {PaymentID: "p1", Amount: 500, Currency: "EUR"}, {PaymentID: "p1", Amount: 900, Currency: "EUR"},
		{PaymentID: "p2"}, {PaymentID: "p3", Currency: "EUR"},
	} {
		p.OrderID = "a"
		must.Get(s.tryRecord(p))(t)
	}
	must.Get(s.ResolveLate(t.Context(), s.rowOf("a", "p2").ID, store.Refunded, "ann"))(t)
	want(t, "of a resolved one", s.record("a", "p2"), callback.RecordedLate)
	want(t, "late payments", s.late(), []string{"a p1 500 EUR callback ", "a p2 -  callback refunded", "a p3 0 EUR callback "})
	want(t, "events", len(s.lateEvents()), 3)
}

// The shop writes over closes, and moves or clears the due time. The receipts find the orders.
func auditByReceipts(t *testing.T, s *shop) {
	s.migrated("ink")
	ids := []string{"a", "b", "c", "gone", "kept"}
	for _, id := range ids {
		s.order(id, -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	}
	from := s.now().Add(-time.Second)
	s.close(ids...)
	s.exec("UPDATE orders SET status = 1, expire_at = ? WHERE id = 'a'", s.time(orderclose.NeverDue))
	s.exec("UPDATE orders SET status = 0, expire_at = ? WHERE id = 'b'", s.time(s.now().Add(72*time.Hour)))
	s.exec("UPDATE orders SET status = 3 WHERE id = 'c'")
	s.exec("DELETE FROM orders WHERE id = 'gone'")
	for _, limit := range []int{1, 2, 3, 100} {
		var got []string
		for after := (store.ReceiptKey{}); ; {
			rows, last, err := s.AuditClosed(t.Context(), from, s.now().Add(time.Minute), after, limit)
			s.must(err)
			for _, r := range rows {
				got = append(got, fmt.Sprintf("%s %s %s %v %v", r.ID, r.Part.State, r.Part, r.Receipt != nil, r.LineQuantities))
				expect.That(t, len(r.Ledger) == 1, "ledger of %s: %v", r.ID, r.Ledger)
			}
			if after = last; after == (store.ReceiptKey{}) {
				break
			}
		}
		slices.Sort(got)
		want(t, fmt.Sprint("in pages of ", limit), got, []string{"a paid paid true map[]", "b open unpaid true map[]", "c other cancelled true map[]",
			"kept closed closed true map[ink:2]"})
	}
	rows, _, err := s.AuditClosed(t.Context(), from.Add(-time.Hour), from, store.ReceiptKey{}, 100)
	s.must(err)
	want(t, "before the closes", len(rows), 0)
}
