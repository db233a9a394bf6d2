package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var payOrdersPromises = []promise[shop]{
	{name: "PreviewReturnsTheOutcomesOfACloseAndChangesNothing", test: previewSays},
	{name: "PayOrdersIsTheCompareAndSetOfPay", test: payOrders, tags: Settings},
	{name: "PayOrdersWritesAnEvent", test: payOrdersEvent},
	{name: "AfterPayOrdersTheFirstPaymentHasPaid", test: payAfterAsking},
}

func previewSays(t *testing.T, s *shop) {
	s.migrated()
	due := s.order("due", -time.Minute)
	s.order("later", time.Hour)
	s.order("paid", -time.Minute)
	s.order("cancelled", -time.Minute)
	must.Get(s.Pay(t.Context(), "paid", "p"))(t)
	must.Get(s.Cancel(t.Context(), "cancelled"))(t)
	ids := []string{"later", "due", "nobody's", "paid", "due", "cancelled", "due ", "DUE", ""}
	before, begin := s.state(), s.now()
	out := must.Get(s.PreviewClose(t.Context(), "", requests(ids...)))(t)
	want(t, "verdicts", verdicts(out), []string{"later not_due", "due closed", "nobody's not_found", "paid already_paid",
		"due closed", "cancelled already_closed", "due  not_found", "DUE not_found", " not_found"})
	if end := s.now(); !out[1].Due.Equal(due.Due) || out[1].At.Before(begin) || out[1].At.After(end) {
		t.Errorf("%+v, of an order due at %v, between %v and %v", out[1], due.Due, begin, end)
	}
	want(t, "state afterwards", s.state(), before)
	out = must.Get(s.PreviewClose(t.Context(), "", requests(names("o-%d", 2500)...)))(t)
	expect.That(t, len(out) == 2500 && out[2499].Verdict == orderclose.NotFound, "of 2500: %d outcomes", len(out))
}

func payOrders(t *testing.T, s *shop) {
	s.migrated()
	s.overdueOrders("a", "paid", "closed", "cancelled")
	must.Get(s.Pay(t.Context(), "paid", "p"))(t)
	s.close("closed")
	must.Get(s.Cancel(t.Context(), "cancelled"))(t)
	for _, round := range []string{"once", "again"} {
		out := must.Get(s.PayOrders(t.Context(), requests("closed", "a", "paid", "cancelled", "nobody's", "a")))(t)
		want(t, "verdicts "+round, verdicts(out), []string{"closed already_closed", "a already_paid", "paid already_paid",
			"cancelled already_closed", "nobody's not_found", "a already_paid"})
	}
	want(t, "paid orders", s.count("SELECT COUNT(*) FROM orders WHERE status = 1 AND paid_at IS NOT NULL AND version = 2"), 2)
	want(t, "money of closed orders", s.late(), []string{"cancelled  -  recheck ", "closed  -  recheck "})
}

// One order was unpaid: it has the event, and PayOrders writes no other.
func payOrdersEvent(t *testing.T, s *shop) {
	s.migrated("ink")
	o := s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.order("callback", -time.Minute)
	must.Get(s.Pay(t.Context(), "callback", "p"))(t)
	begin := s.now()
	for range 2 {
		must.Get(s.PayOrders(t.Context(), requests("a", "callback", "nobody's")))(t)
	}
	must.Get(s.Pay(t.Context(), "a", "p2"))(t)
	end := s.now()
	s.wantPaidEvent(orderclose.OrderPaid{OrderID: "a", Category: "book", Due: o.Due, Version: 2}, 0, begin, end)
}

// wantPaidEvent checks that the only event is that of an order that was marked as paid between begin and end, and how many columns of the order it has.
func (s *shop) wantPaidEvent(expected orderclose.OrderPaid, columns int, begin, end time.Time) {
	s.Helper()
	payloads := s.texts("SELECT payload FROM outbox_events")
	must.That(s, len(payloads) == 1, "events: %q, want one of order %s", payloads, expected.OrderID)
	id, got, err := orderclose.DecodeOrderPaid(store.ExpandEvent(expected.OrderID, []byte(payloads[0])))
	s.must(err)
	expect.That(s, !got.PaidAt.Before(begin) && !got.PaidAt.After(end) && len(got.Columns) == columns,
		"%+v, want %d columns and a time between %v and %v", got, columns, begin, end)
	expected.PaidAt, expected.Columns = got.PaidAt, got.Columns
	want(s, "event", got, expected)
	want(s, "id of the event", id, "order.paid/"+expected.OrderID)
}

// PayOrders marks the order paid without a payment id. The first payment that arrives counts as the one that paid, and any other payment goes back.
func payAfterAsking(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	must.Get(s.PayOrders(t.Context(), requests("a")))(t)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			_, err := s.Pay(t.Context(), "a", fmt.Sprintf("p%d", n))
			expect.That(t, err == nil, "%v", err)
		})
	}
	wg.Wait()
	want(t, "late payments of eight", len(s.late()), 7)
}

// payOrdersMapped tests the same in a shop's own tables, with the paid status of the mapping if it has one.
func payOrdersMapped(t *testing.T, s *mapped) {
	s.begin()
	overdue, later, paid, gone := s.an(1, -time.Minute), s.an(2, time.Hour), s.an(3, -time.Minute), s.an(4, -time.Minute)
	s.put(s.Mapping.Status.From[0], overdue, later)
	s.put(s.Paid, paid)
	preview := must.Get(s.PreviewClose(t.Context(), "", ask(later, overdue, gone, paid, overdue)))(t)
	want(t, "preview", verdicts(preview), []string{
		later.ID + " not_due", overdue.ID + " closed", gone.ID + " not_found", paid.ID + " already_paid", overdue.ID + " closed"})
	expect.That(t, !preview[1].At.Before(overdue.Due) && preview[1].Due.Equal(overdue.Due), "%+v, due %v", preview[1], overdue.Due)
	begin := s.now()
	out, err := s.PayOrders(t.Context(), ask(overdue, gone, paid))
	if len(s.Mapping.Status.Paid) == 0 {
		expect.That(t, err != nil, "the mapping has no paid status, and the order was paid: %v", out)
		return
	}
	s.must(err)
	want(t, "payments", verdicts(out), []string{overdue.ID + " already_paid", gone.ID + " not_found", paid.ID + " already_paid"})
	s.checkSet(s.Mapping.SetPaid)
	event := orderclose.OrderPaid{OrderID: overdue.ID, Due: overdue.Due}
	if s.Mapping.Category != "" {
		event.Category = overdue.Category
	}
	if s.Mapping.Version != "" {
		event.Version = 2
	}
	s.wantPaidEvent(event, len(s.Mapping.EventColumns), begin, s.now())
	want(t, "close of the paid order", s.closing(overdue)[0].Verdict, orderclose.AlreadyPaid)
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), 0)
}
