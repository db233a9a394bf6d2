package storetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var latePaymentPromises = []promise[shop]{
	{name: "APaymentIsRecordedOnce", test: recordPayments, tags: Dialect | Settings},
	{name: "LateMoneyWithoutAnIDIsPerhapsTheSameMoney", test: lateWithoutID},
	{name: "LateMoneyOfAnArchivedOrderIsRecorded", test: lateOfArchivedOrder},
	{name: "AStatusThatIsNotNamedIsAnError", test: unnamedStatus},
	{name: "APaymentThatCannotBeRecordedChangesNothing", test: badPayments},
	{name: "ALatePaymentIsResolvedOnce", test: resolveLate},
}

// record records a payment of 1250 cents in a transaction of its own.
func (s *shop) record(order, payment string) callback.Recorded {
	s.Helper()
	return must.Get(s.tryRecord(store.LatePayment{OrderID: order, PaymentID: payment, Amount: 1250, Currency: "EUR"}))(s)
}

// tryRecord calls RecordPayment in a transaction of its own, and commits after a success.
func (s *shop) tryRecord(p store.LatePayment) (r callback.Recorded, err error) {
	tx, err := s.DB().BeginTx(s.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after the commit
	if r, err = callback.RecordPayment(s.Context(), s.Payments, orderclose.SQL(tx), p); err == nil {
		err = tx.Commit()
	}
	return r, err
}

// late returns the late payments: order, payment, amount, currency, source, and whether somebody resolved it.
func (s *shop) late() []string {
	s.Helper()
	return s.texts("SELECT CONCAT_WS(' ', order_id, payment_id, CASE WHEN amount IS NULL THEN '-' ELSE CONCAT(amount) END, currency, " +
		"source, resolution) FROM late_payments ORDER BY order_id, id")
}

// lateEvents returns the data of the events order.paid_late in the outbox, without the time.
func (s *shop) lateEvents() (all []string) {
	s.Helper()
	_, err := s.Dispatch(s.Context(), wire.EventOutbox, 0, 1000, func(_ context.Context, rows []wire.OutboxRow) []int64 {
		for _, r := range rows {
			var e struct {
				ID, Type, Subject string
				Data              map[string]any
			}
			s.must(json.Unmarshal(r.Payload, &e))
			if e.Type != "order.paid_late" {
				continue
			}
			at, err := time.Parse(time.RFC3339, fmt.Sprint(e.Data["found_at"]))
			age := s.now().Sub(at)
			expect.That(s, err == nil && age >= 0 && age <= time.Minute && e.Subject == r.OrderID, "event %s", r.Payload)
			delete(e.Data, "found_at")
			data := must.Get(json.Marshal(e.Data))(s)
			all = append(all, e.ID+" "+string(data))
		}
		return nil
	})
	s.must(err)
	return all
}

func recordPayments(t *testing.T, s *shop) {
	s.migrated()
	s.overdueOrders("open", "due", "asked", "closed", "cancelled")
	s.order("early", time.Hour)
	s.close("closed")
	must.Get(s.Cancel(t.Context(), "cancelled"))(t)
	must.Get(s.PayOrders(t.Context(), requests("asked")))(t)
	for _, row := range []struct {
		order, payment string
		want           callback.Recorded
	}{
		{"open", "p1", callback.RecordedPaid}, {"open", "p1", callback.RecordedAlready}, {"open", "p2", callback.RecordedLate}, {"open", "p2", callback.RecordedLate},
		{"early", "p1", callback.RecordedPaid},
		{"asked", "p1", callback.RecordedAlready}, {"asked", "p1", callback.RecordedAlready}, {"asked", "p2", callback.RecordedLate},
		{"asked", "p1", callback.RecordedAlready},
		{"closed", "p1", callback.RecordedLate}, {"closed", "p1", callback.RecordedLate}, {"closed", "p2", callback.RecordedLate},
		{"cancelled", "p1", callback.RecordedLate},
	} {
		want(t, "payment "+row.payment+" of "+row.order, s.record(row.order, row.payment), row.want)
	}
	want(t, "orders", s.texts("SELECT CONCAT_WS(' ', id, status, version, COALESCE(payment_id, '-')) FROM orders ORDER BY id"),
		[]string{"asked 1 3 p1", "cancelled 3 2 -", "closed 2 2 -", "due 0 1 -", "early 1 2 p1", "open 1 2 p1"})
	want(t, "without the time of the payment", s.count("SELECT COUNT(*) FROM orders WHERE status = 1 AND paid_at IS NULL"), 0)
	want(t, "late payments", s.late(), []string{"asked p2 1250 EUR same_id ", "cancelled p1 1250 EUR callback ",
		"closed p1 1250 EUR callback ", "closed p2 1250 EUR callback ", "open p2 1250 EUR callback "})
	want(t, "events of closes", s.texts("SELECT order_id FROM outbox_events WHERE kind = 'order.closed'"), []string{"closed"})
	event := func(order, payment, source string) string {
		return fmt.Sprintf(`order.paid_late/%d:%s/%s {"amount":1250,"currency":"EUR","order_id":"%[2]s","payment_id":"%[3]s","source":"%[4]s"}`,
			len(order), order, payment, source)
	}
	want(t, "events", s.lateEvents(), []string{event("open", "p2", "callback"), event("asked", "p2", "same_id"), event("closed", "p1", "callback"),
		event("closed", "p2", "callback"), event("cancelled", "p1", "callback")})
}

func lateWithoutID(t *testing.T, s *shop) {
	s.migrated()
	s.overdueOrders("a", "b", "open", "paid")
	s.close("a", "b")
	want(t, "payment", s.record("paid", "p"), callback.RecordedPaid)
	recheck := func(order, payment string) store.LatePayment {
		return store.LatePayment{OrderID: order, PaymentID: payment, Source: store.SourceRecheck}
	}
	for _, round := range []struct {
		name string
		new  int
	}{{"once", 1}, {"again", 0}} {
		n := must.Get(s.RecordLate(t.Context(), []store.LatePayment{recheck("a", ""), recheck("open", ""), recheck("paid", ""), recheck("nobody's", "")}))(t)
		want(t, "recorded "+round.name, n, round.new)
	}
	want(t, "late payments", s.late(), []string{"a  -  recheck "})
	want(t, "callback", s.record("a", "p1"), callback.RecordedLate)
	want(t, "with the id", s.late(), []string{"a  -  recheck ", "a p1 1250 EUR same_id "})
	want(t, "callback", s.record("b", "p1"), callback.RecordedLate)
	n := must.Get(s.RecordLate(t.Context(), []store.LatePayment{recheck("a", ""), recheck("b", ""), recheck("b", "p1"), recheck("b", "p2")}))(t)
	want(t, "recorded", n, 1)
	want(t, "at last", s.late(), []string{"a  -  recheck ", "a p1 1250 EUR same_id ", "b p1 1250 EUR callback ", "b p2 -  recheck "})
	want(t, "events", len(s.lateEvents()), 4)
}

func unnamedStatus(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	s.close("a")
	s.exec("UPDATE orders SET status = 77")
	_, err := s.tryRecord(store.LatePayment{OrderID: "a", PaymentID: "p1"})
	if !errors.Is(err, callback.ErrUnnamedStatus) || !strings.Contains(err.Error(), `"77"`) {
		t.Error(err)
	}
	want(t, "found by asking", must.Get(s.RecordLate(t.Context(), []store.LatePayment{{OrderID: "a", Source: store.SourceRecheck}}))(t), 1)

	s.order("b", -time.Minute)
	s.exec("UPDATE orders SET status = 77 WHERE id = 'b'") // between the question and the answer
	want(t, "verdict", must.Get(s.PayOrders(t.Context(), requests("b")))(t)[0].Verdict, orderclose.AlreadyPaid)
	want(t, "late payments", s.late(), []string{"a  -  recheck ", "b  -  recheck "})
}

// The shop moves closed orders to another table.
func lateOfArchivedOrder(t *testing.T, s *shop) {
	s.migrated()
	s.overdueOrders("a", "open")
	s.close("a")
	s.exec("DELETE FROM orders")
	for _, recorded := range []int{1, 0} {
		n := must.Get(s.RecordLate(t.Context(), []store.LatePayment{{OrderID: "a", Source: store.SourceRecheck}, {OrderID: "open", Source: store.SourceRecheck}}))(t)
		want(t, "recorded", n, recorded)
	}
	for range 2 {
		want(t, "callback", s.record("a", "p1"), callback.RecordedLate)
		expect.Is(t, expect.Err(s.tryRecord(store.LatePayment{OrderID: "open", PaymentID: "p1"})), callback.ErrNoOrder, "an order that no close has seen")
	}
	want(t, "late payments", s.late(), []string{"a  -  recheck ", "a p1 1250 EUR same_id "})
	want(t, "events", len(s.lateEvents()), 2)
}

func badPayments(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	before := s.state()
	for _, row := range []struct {
		p    store.LatePayment
		want error
		hint string
	}{
		{store.LatePayment{OrderID: "nobody's", PaymentID: "p"}, callback.ErrNoOrder, "let the provider call again"},
		{store.LatePayment{OrderID: "A", PaymentID: "p"}, callback.ErrNoOrder, "no such order"},
		{store.LatePayment{OrderID: "", PaymentID: "p"}, callback.ErrNoOrder, "no such order"},
		{store.LatePayment{OrderID: "a"}, store.ErrBadPayment, "it has no id"},
		{store.LatePayment{OrderID: "a", PaymentID: strings.Repeat("p", 65)}, store.ErrBadPayment, "at most 64 bytes"},
		{store.LatePayment{OrderID: "a", PaymentID: strings.Repeat("p", 256)}, store.ErrBadPayment, "at most 255 bytes"},
		{store.LatePayment{OrderID: "a", PaymentID: "p\n"}, store.ErrBadPayment, "control characters"},
		{store.LatePayment{OrderID: "a", PaymentID: "p", Amount: 5}, store.ErrBadPayment, "no currency"},
		{store.LatePayment{OrderID: "a", PaymentID: "p", Amount: -5, Currency: "EUR"}, store.ErrBadPayment, "minor units"},
		{store.LatePayment{OrderID: "a", PaymentID: "p", Amount: 5, Currency: "euros and cents"}, store.ErrBadPayment, "ISO 4217"},
	} {
		if r, err := s.tryRecord(row.p); r != "" || !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.hint) {
			t.Errorf("%+v: %q, %v; want an error with %q", row.p, r, err, row.hint)
		}
	}
	want(t, "state afterwards", s.state(), before)
}

// recordPaymentsMapped tests the same in a shop's own tables, which have no column for the payment's id.
func recordPaymentsMapped(t *testing.T, s *mapped) {
	s.begin()
	overdue, gone, paid, closed := s.an(1, -time.Minute), s.an(2, -time.Minute), s.an(3, -time.Minute), s.an(4, -time.Minute)
	s.put(s.Mapping.Status.From[0], overdue, closed)
	s.put(s.Paid, paid)
	s.closing(closed)
	want(t, "of a closed order", s.record(closed.ID, "p1"), callback.RecordedLate)
	want(t, "again", s.record(closed.ID, "p1"), callback.RecordedLate)
	if slices.Contains(s.Mapping.Status.Paid, s.Paid) {
		want(t, "of a paid order", s.record(paid.ID, "p2"), callback.RecordedAlready)
	} else if _, err := s.tryRecord(store.LatePayment{OrderID: paid.ID, PaymentID: "p2"}); !errors.Is(err, callback.ErrUnnamedStatus) {
		t.Errorf("an order whose status the mapping does not name: %v", err)
	}
	want(t, "late payments", s.late(), []string{closed.ID + " p1 1250 EUR callback "})
	want(t, "events", len(s.lateEvents()), 1)
	expect.Is(t, expect.Err(s.tryRecord(store.LatePayment{OrderID: gone.ID, PaymentID: "p"})), callback.ErrNoOrder, "an order that does not exist")
	if len(s.Mapping.Status.Paid) == 0 {
		r, err := s.tryRecord(store.LatePayment{OrderID: overdue.ID, PaymentID: "p"})
		expect.That(t, err != nil, "the mapping has no paid status, and the order was paid: %v", r)
		return
	}
	want(t, "of an open order", s.record(overdue.ID, "p1"), callback.RecordedPaid)
	want(t, "again", s.record(overdue.ID, "p1"), callback.RecordedAlready)
	s.checkSet(s.Mapping.SetPaid)
	want(t, "close of the paid order", s.closing(overdue)[0].Verdict, orderclose.AlreadyPaid)
}

func resolveLate(t *testing.T, s *shop) {
	s.migrated()
	sum := must.Get(s.CountLate(t.Context()))(t)
	want(t, "without late payments", sum, store.LateSummary{})
	s.order("a", -time.Minute)
	s.close("a")
	for _, payment := range []string{"p1", "p2", "p3"} {
		want(t, "payment", s.record("a", payment), callback.RecordedLate)
	}
	all := must.Get(s.LatePayments(t.Context(), false, 2))(t)
	must.That(t, len(all) == 2 && all[0].PaymentID == "p1" && all[0].Money() == "1250 EUR" && !all[0].FoundAt.IsZero() && all[0].ResolvedAt.IsZero(),
		"late payments %+v", all)
	sum = must.Get(s.CountLate(t.Context()))(t)
	want(t, "unresolved", sum, store.LateSummary{Unresolved: 3, Oldest: all[0].FoundAt})

	begin := s.now()
	p := must.Get(s.ResolveLate(t.Context(), all[0].ID, store.Refunded, "ann"))(t)
	s.within("resolved", p.ResolvedAt, begin)
	want(t, "resolved", []string{p.PaymentID, string(p.Resolution), p.ResolvedBy}, []string{"p1", "refunded", "ann"})
	again, err := s.ResolveLate(t.Context(), all[0].ID, store.Reopened, "eve")
	if want(t, "again", again, p); !errors.Is(err, store.ErrResolvedBefore) || !strings.Contains(err.Error(), "refunded by ann") {
		t.Errorf("resolved twice: %v", err)
	}
	expect.Is(t, expect.Err(s.ResolveLate(t.Context(), 999, store.Refunded, "ann")), store.ErrNoLatePayment, "an unknown id")
	if one, err := s.LatePayment(t.Context(), p.ID); err != nil || !cmp.Equal(one, p) {
		t.Errorf("%+v, %v", one, err)
	}
	want(t, "unresolved", len(must.Get(s.LatePayments(t.Context(), false, 9))(t)), 2)
	newest := must.Get(s.LatePayments(t.Context(), true, 9))(t)
	want(t, "all", []string{newest[0].PaymentID, newest[2].PaymentID}, []string{"p3", "p1"})
	want(t, "a repeated callback", s.record("a", "p1"), callback.RecordedLate)
	want(t, "late payments", len(s.late()), 3)
}
