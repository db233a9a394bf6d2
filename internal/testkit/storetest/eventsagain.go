package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var eventsAgainPromises = []promise[shop]{
	{name: "EventsAreWrittenAgainAsTheyWere", test: eventsAgain},
	{name: "OnlyEventsOfTheWindowAreWrittenAgain", test: eventsAgainWindow},
}

// publish empties the outbox of events, and returns them in its order.
func (s *shop) publish() (events []string) {
	s.Helper()
	n := must.Get(s.Dispatch(s.Context(), wire.EventOutbox, 0, 999, func(_ context.Context, rows []wire.OutboxRow) (done []int64) {
		for _, r := range rows {
			var e map[string]any
			decode := json.NewDecoder(bytes.NewReader(r.Payload))
			s.must(decode.Decode(&e))
			event, err := json.Marshal(e)
			s.must(err)
			events, done = append(events, string(event)), append(done, r.ID)
		}
		return done
	}))(s)
	want(s, "events", len(events), n)
	return events
}

func eventsAgain(t *testing.T, s *shop) {
	s.migrated("ink", "pen")
	begin := s.now()
	pays := s.order("pays", 13*time.Minute)
	written, _ := s.remind(reminderOf(pays, 10*time.Minute))
	want(t, "reminders", written, 1)
	s.publish() // a reminder is not written again

	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "pen", Quantity: 1})
	s.order("b", -time.Minute)
	must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "a", Attempt: 3}}))(t)
	want(t, "closed", verdicts(s.close("b")), []string{"b closed"})
	must.Get(s.PayOrders(t.Context(), requests("pays")))(t)
	must.Get(s.RecordLate(t.Context(), []store.LatePayment{
		{OrderID: "b", PaymentID: "p1", Amount: 100, Currency: "CNY", Source: store.SourceRecheck}, {OrderID: "a", Source: store.SourceRecheck}}))(t)
	resolved := must.Get(s.LatePayments(t.Context(), false, 1))(t)
	must.Get(s.ResolveLate(t.Context(), resolved[0].ID, store.Refunded, "ann"))(t)
	first := s.publish()
	var expected []string
	for _, e := range first {
		if !strings.Contains(e, `"id":"order.paid_late/1:`+resolved[0].OrderID) {
			expected = append(expected, e)
		}
	}
	want(t, "events of everything", []int{len(first), len(expected)}, []int{5, 4})

	before, end := s.state(), s.now().Add(time.Second)
	plan := must.Get(ops.PlanEventsAgain(t.Context(), s.Store, begin, end))(t)
	want(t, "events after a plan", len(s.publish()), 0)
	done := must.Get(ops.WriteEventsAgain(t.Context(), s.Store, begin, end, 1000, func(int64) {}))(t)
	want(t, "written", done, plan)
	want(t, "planned", plan, ops.EventsAgain{From: begin.UTC(), To: end.UTC(), Closed: 2, Paid: 1, PaidLate: 1})
	want(t, "events", s.publish(), expected)
	want(t, "state", s.state(), before)
	want(t, "reminders", s.count("SELECT COUNT(*) FROM order_reminders"), 1)

	// Without the order's row the event has what the receipt and the ledger have.
	s.exec("DELETE FROM orders WHERE id = 'a'")
	_, _, err := s.ClosedAgain(t.Context(), begin, end, store.ReceiptKey{}, 10)
	s.must(err)
	again := s.publish()
	if len(again) != 2 || !strings.Contains(again[0], `"id":"order.closed/a"`) || !strings.Contains(again[0], `"attempts":3`) ||
		!strings.Contains(again[0], `"sku":"pen"`) || strings.Contains(again[0], "book") {
		t.Errorf("without the row of the order: %s", again)
	}
}

// Two closes in one millisecond are written once, at any size of a page. A receipt of the program before has no copy of its payment.
func eventsAgainWindow(t *testing.T, s *shop) {
	s.migrated()
	begin := s.now().Truncate(time.Millisecond)
	ids := names("o%02d", 7)
	s.overdueOrders(ids...)
	s.close(ids...)
	s.order("paid", -time.Minute)
	must.Get(s.PayOrders(t.Context(), requests("paid")))(t)
	s.exec("DELETE FROM paid_receipts")
	s.publish()
	for i, id := range ids {
		s.exec("UPDATE receipts SET closed_at = ? WHERE order_id = ?", s.time(begin.Add(time.Duration(i/2)*time.Millisecond)), id)
	}
	for _, limit := range []int{1, 2, 3, 7, 50} {
		total := 0
		for after, more := (store.ReceiptKey{}), true; more; more = after != (store.ReceiptKey{}) {
			n, last, err := s.ClosedAgain(t.Context(), begin.Add(time.Millisecond), begin.Add(3*time.Millisecond), after, limit)
			s.must(err)
			total, after = total+n, last
		}
		var written []string
		for _, e := range s.publish() {
			written = append(written, strings.SplitN(strings.SplitN(e, `"id":"order.closed/`, 2)[1], `"`, 2)[0])
		}
		want(t, fmt.Sprintf("in pages of %d", limit), written, ids[2:6])
		want(t, "counted", total, 4)
	}
	n, _, err := s.PaidAgain(t.Context(), begin, begin.Add(time.Hour), store.ReceiptKey{}, 10)
	s.must(err)
	want(t, "payments without a copy", n, 0)
}
