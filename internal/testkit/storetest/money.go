package storetest

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/store"
)

// moneyPromises are about payments that the provider tells again, or that come when nobody waits for them.
var moneyPromises = []promise{
	{"ARepeatedCallbackOfTheMoneyThatPaidIsNeverLate", repeatedAfterRefund},
}

// The shop refunds a paid order and cancels it. The provider repeats the callback of the payment that paid the order.
func repeatedAfterRefund(t *testing.T, s *shop) {
	s.migrated()
	for _, id := range []string{"refunded", "unnamed", "early", "reopened"} {
		s.order(id, -time.Minute)
	}
	want(t, "payment", s.record("refunded", "p1"), store.RecordedPaid)
	want(t, "payment", s.record("unnamed", "p1"), store.RecordedPaid)
	s.exec("UPDATE orders SET status = 3 WHERE id = 'refunded'")
	s.exec("UPDATE orders SET status = 77 WHERE id = 'unnamed'")
	for range 2 {
		want(t, "again, after the refund", s.record("refunded", "p1"), store.RecordedAlready)
		want(t, "again, in a state that the mapping does not name", s.record("unnamed", "p1"), store.RecordedAlready)
	}
	want(t, "late payments", s.late(), nil)
	want(t, "another payment", s.record("refunded", "p2"), store.RecordedLate)

	// A shop writes the id before the payment. The order is closed, and then the money comes.
	s.exec("UPDATE orders SET payment_id = 'p1' WHERE id IN ('early', 'reopened')")
	s.close("early", "reopened")
	s.exec("UPDATE orders SET status = 1 WHERE id = 'reopened'")
	for range 2 {
		want(t, "of a closed order", s.record("early", "p1"), store.RecordedLate)
		want(t, "of an order that the shop has reopened", s.record("reopened", "p1"), store.RecordedAlready)
	}
	want(t, "late payments", s.late(), []string{"early p1 1250 EUR same_id ", "refunded p2 1250 EUR callback "})
	want(t, "events", s.lateEvents(), []string{
		`order.paid_late/8:refunded/p2 {"amount":1250,"currency":"EUR","order_id":"refunded","payment_id":"p2","source":"callback"}`,
		`order.paid_late/5:early/p1 {"amount":1250,"currency":"EUR","order_id":"early","payment_id":"p1","source":"same_id"}`,
	})
}
