package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var auditPromises = []promise[shop]{
	{name: "AuditPagesHaveEachOrderOfTheWindowOnce", test: auditPages},
	{name: "AuditRowsAreComplete", test: auditRows},
	{name: "ClosedPagesHaveTheTimeOfTheClose", test: closedPages},
}

// eachAudited reads all parts in pages of two, and calls each with the orders. Without the tables of orderclose it reads those of the shop only.
func (s *shop) eachAudited(from, to time.Time, each func(store.AuditPart, store.AuditRow)) {
	s.Helper()
	bare := s.CanAudit(s.Context()) != nil
	for _, part := range must.Get(s.AuditParts(s.Context()))(s) {
		part.RowsOnly = bare
		for last, more := (orderclose.Order{}), true; more; {
			page := must.Get(s.AuditPage(s.Context(), part, from, to, last, 2))(s)
			for _, r := range page {
				each(part, r)
			}
			if more = len(page) == 2; more {
				last = page[1].Order
			}
		}
	}
}

// audited returns the orders by status.
func (s *shop) audited(from, to time.Time) map[string][]store.AuditRow {
	s.Helper()
	all := map[string][]store.AuditRow{}
	s.eachAudited(from, to, func(part store.AuditPart, r store.AuditRow) { all[part.Status] = append(all[part.Status], r) })
	return all
}

func auditPages(t *testing.T, s *shop) {
	s.migrated("ink")
	now := s.now()
	from := now.Add(-time.Hour)
	var want []string
	for i := range 7 { // three are due at the same time
		o := orderclose.Order{ID: fmt.Sprint("o", i), CreatedAt: from.Add(-time.Hour), Due: from.Add(time.Duration(max(i-2, 0)) * time.Minute)}
		s.must(s.CreateOrder(t.Context(), o, nil))
		want = append(want, o.ID)
	}
	for id, due := range map[string]time.Time{"before": from.Add(-time.Second), "after": now.Add(time.Hour), "never": orderclose.NeverDue} {
		s.must(s.CreateOrder(t.Context(), orderclose.Order{ID: id, CreatedAt: from, Due: due}, nil))
	}
	for _, from := range []time.Time{from, from.Add(time.Microsecond)} { // the second one is rounded down, also behind the first page
		var got []string
		for _, r := range s.audited(from, now)["unpaid"] {
			got = append(got, r.ID)
		}
		expect.That(t, slices.Equal(got, want), "%v, want %v", got, want)
	}
}

func auditRows(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	for _, id := range []string{"closed", "paid", "cancelled", "open"} {
		s.order(id, -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "nib", Quantity: 1}, shopdb.Item{SKU: "ink", Quantity: 1})
	}
	s.answer(s.Pay(t.Context(), "paid", "p"))
	s.answer(s.Cancel(t.Context(), "cancelled"))
	at := s.close("closed")[0].At
	for _, id := range []string{"p", "q"} {
		must.Get(s.RecordLate(t.Context(), []store.LatePayment{{OrderID: "closed", PaymentID: id, Source: store.SourceRecheck}}))(t)
	}
	s.exec("UPDATE late_payments SET resolved_at = ? WHERE payment_id = 'p'", s.time(at))
	all := s.audited(s.now().Add(-time.Hour), s.now().Add(time.Hour))
	for status, id := range map[string]string{"unpaid": "open", "paid": "paid", "closed": "closed", "cancelled": "cancelled"} {
		must.That(t, len(all[status]) == 1 && all[status][0].ID == id, "%s: %+v", status, all[status])
	}
	r := all["closed"][0]
	if r.Receipt == nil || !r.Receipt.ClosedAt.Equal(at) || r.LineQuantities["ink"] != 3 || r.LineQuantities["nib"] != 1 || len(r.Ledger) != 2 ||
		r.Late != 2 || r.LateOpen != 1 || r.PaidAt || r.Part.State != store.AuditClosed {
		t.Errorf("%+v", r)
	}
	if r := all["cancelled"][0]; r.Receipt != nil || len(r.Ledger) != 2 || r.Ledger[0].Kind != "cancel" || r.Part.State != store.AuditOther {
		t.Errorf("%+v", r)
	}
	rules := s.AuditRules()
	expect.That(t, rules.Exclusive && rules.Lines, "%+v", rules)
}

// auditMapped audits a shop's own tables, with shards too.
func auditMapped(t *testing.T, s *mapped) {
	s.begin()
	closed, open, paid := s.an(1, -time.Minute), s.an(2, -time.Minute), s.an(3, -time.Minute)
	old := s.an(4, 0)
	old.CreatedAt = s.monthsAgo(2)
	old.Due = old.CreatedAt.Add(time.Hour)
	s.put(s.Mapping.Status.From[0], closed, open, old)
	s.put(s.Paid, paid)
	s.closing(closed)
	all := map[string]store.AuditRow{}
	for _, rows := range s.audited(old.Due.Add(-time.Hour), s.now().Add(time.Hour)) {
		for _, r := range rows {
			all[r.ID] = r
		}
	}
	if r := all[closed.ID]; r.Part.State != store.AuditClosed || r.Receipt == nil || !r.Due.Equal(closed.Due) ||
		s.Mapping.Items != nil && (r.LineQuantities[s.SKUs[0]] != 2 || len(r.Ledger) != 2) {
		t.Errorf("closed: %+v", r)
	}
	for _, o := range []orderclose.Order{open, old} {
		r := all[o.ID]
		expect.That(t, r.ID == o.ID && r.Part.State == store.AuditOpen && r.Receipt == nil && r.Due.Equal(o.Due), "open: %+v", r)
	}
	if r, named := all[paid.ID], slices.Contains(s.Mapping.Status.Paid, s.Paid); r.Part.State != store.AuditPaid || r.Part.Unlisted == named {
		t.Errorf("paid: %+v", r)
	}
	rules := s.AuditRules()
	expect.That(t, !rules.Exclusive && rules.Lines == (s.Mapping.Items != nil), "%+v", rules)
}

// closedAt returns when each order was closed.
func (s *shop) closedAt(from, to time.Time) map[string]time.Time {
	s.Helper()
	all := map[string]time.Time{}
	s.eachAudited(from, to, func(_ store.AuditPart, r store.AuditRow) { all[r.ID] = r.ClosedAt })
	return all
}

func closedPages(t *testing.T, s *shop) {
	s.migrated("ink")
	s.overdueOrders("a", "b", "c", "open", "paid")
	must.Get(s.Pay(t.Context(), "paid", "p"))(t)
	at := s.close("a", "b", "c")[0].At
	s.exec("UPDATE orders SET closed_at = NULL WHERE id = 'b'")
	want(t, "times", s.closedAt(s.now().Add(-time.Hour), s.now()), map[string]time.Time{"a": at, "b": {}, "c": at, "open": {}, "paid": {}})
}

// Who asks what a close would do reads the tables of the shop only: nothing else may exist.
func previewMapped(t *testing.T, s *mapped) {
	s.begin()
	closed, open, paid := s.an(1, -time.Minute), s.an(2, -time.Minute), s.an(3, -time.Minute)
	s.put(s.Mapping.Status.From[0], closed, open)
	s.put(s.Paid, paid)
	at := s.closing(closed)[0].At
	for _, own := range mapping.OwnTables() {
		if own != "order_delays" { // a rule reads it
			s.exec("DROP TABLE " + own)
		}
	}
	s.must(s.CheckTables(t.Context()))
	out := must.Get(s.PreviewClose(t.Context(), "", ask(closed, open, paid)))(t)
	want(t, "verdicts", verdicts(out), []string{closed.ID + " already_closed", open.ID + " closed", paid.ID + " already_paid"})
	times := s.closedAt(open.Due.Add(-time.Hour), s.now())
	got, known := times[closed.ID], len(s.Mapping.ClosedAt) > 0
	// The column may have whole seconds.
	expect.That(t, len(times) == 3 && (!known || at.Sub(got).Abs() <= time.Second) && (known || got.IsZero()), "closed at %v, read %v", at, times)
}
