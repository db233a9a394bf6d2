package ops

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// manyOrders is a database with n orders, made when a page is read. Every tenth order has no receipt.
type manyOrders struct {
	AuditStore
	n    int
	each func(done int)
}

func (e manyOrders) Now(context.Context) (time.Time, error) { return due.Add(time.Hour), nil }
func (e manyOrders) AuditRules() store.AuditRules {
	return store.AuditRules{Exclusive: true, Lines: true}
}
func (e manyOrders) CanAudit(context.Context) error { return nil }
func (e manyOrders) AuditParts(context.Context) ([]store.AuditPart, error) {
	return []store.AuditPart{{Status: "closed", State: store.AuditClosed}}, nil
}

func (e manyOrders) Rechecked(context.Context, string, time.Duration) (until, now time.Time, err error) {
	return due.Add(30 * time.Second), due.Add(time.Hour), nil
}

func (e manyOrders) AuditClosed(context.Context, time.Time, time.Time, store.ReceiptKey, int) (rows []store.AuditRow, last store.ReceiptKey, err error) {
	return nil, last, nil
}

func (e manyOrders) AuditPage(_ context.Context, part store.AuditPart, _, _ time.Time, after orderclose.Order, limit int) ([]store.AuditRow, error) {
	begin := 0
	if after.ID != "" {
		begin = int(after.Due.Sub(due)/time.Millisecond) + 1
	}
	var page []store.AuditRow
	for i := begin; i < e.n && len(page) < limit; i++ {
		r := row(store.AuditClosed, nil)
		r.ID, r.Due = fmt.Sprintf("order-%08d", i), due.Add(time.Duration(i)*time.Millisecond)
		r.Receipt.Due, r.Receipt.ClosedAt = r.Due, r.Due
		if i%10 == 0 {
			r.Receipt = nil
		}
		page = append(page, r)
	}
	e.each(begin)
	return page, nil
}

// TestRun_MemoryDoesNotGrowWithTheOrders, nor with the findings: it counts heap objects early and late.
func TestRun_MemoryDoesNotGrowWithTheOrders(t *testing.T) {
	const n = 100_000
	objects := map[int]uint64{}
	db := manyOrders{n: n, each: func(done int) {
		if done == n/10 || done == n/10*9 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			objects[done] = m.HeapObjects
		}
	}}
	found := 0
	sum, err := Audit(t.Context(), AuditOptions{Store: db, Config: &config.Config{}, From: due, To: due.Add(time.Hour), Bound: time.Hour,
		OnFinding: func(f Finding) error {
			found++
			return nil
		}})
	must.That(t, err == nil && sum.Orders == n && sum.FindingCount == n/10 && sum.Findings[NoReceipt] == found, "%+v, %v", sum, err)
	if early, late := objects[n/10], objects[n/10*9]; late > early+5000 {
		t.Errorf("%d objects after %d orders, %d after %d", early, n/10, late, n/10*9)
	}
}

func TestRun_EndsWithTheErrorOfFound(t *testing.T) {
	full := errors.New("the disk is full")
	db := manyOrders{n: 5000, each: func(int) {}}
	_, err := Audit(t.Context(), AuditOptions{Store: db, Config: &config.Config{}, From: due, To: due.Add(time.Hour), OnFinding: func(Finding) error {
		return full
	}})
	expect.That(t, errors.Is(err, full), "%v", err)
}

func TestSummary_CountsLatePaymentsAndMissingRechecks(t *testing.T) {
	late := factsWith(func(f *facts) {
		f.notRechecked = []span{{due, due.Add(time.Second)}, {due.Add(time.Second), due.Add(time.Minute)}}
	})
	s := AuditSummary{Statuses: map[string]int{}, ClosedBy: map[orderclose.Path]int{}}
	for _, change := range []func(r *store.AuditRow){nil, func(r *store.AuditRow) {
		r.Late, r.Receipt.ClosedAt = 2, due.Add(time.Minute)
	}, func(r *store.AuditRow) { r.Late, r.LateOpen = 2, 1 }} {
		s.count(row(store.AuditClosed, change), late)
	}
	expect.Equal(t, fmt.Sprint(s.LatePayments, s.LateUnresolved, s.NotRechecked), "2 1 2", "late payments, unresolved ones and orders without a recheck")
}

var due = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// row is an order of a state with what belongs to one that is as it should be; change plants a difference.
func row(state store.AuditState, change func(r *store.AuditRow)) store.AuditRow {
	r := store.AuditRow{Order: orderclose.Order{ID: "o", Due: due}, Part: store.AuditPart{Status: string(state), State: state}, LineQuantities: map[string]int64{}}
	if state == store.AuditClosed {
		r.Receipt = &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second), Path: orderclose.PathPipeline}
		r.LineQuantities = map[string]int64{"ink": 2, "nib": 1}
		r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "close", Quantity: 2}, {SKU: "nib", Kind: "close", Quantity: 1}}
	}
	if change != nil {
		change(&r)
	}
	return r
}

// factsWith returns facts of a shop with the reference schema, an hour after the due time.
func factsWith(change func(f *facts)) facts {
	f := facts{
		rules: store.AuditRules{Exclusive: true, Lines: true}, receipts: true, now: due.Add(time.Hour), bound: 30 * time.Minute,
	}
	if change != nil {
		change(&f)
	}
	return f
}

// A checkout whose clock is behind writes due times before the creation time of the database's clock.
func TestAuditSummary_CountsOrdersThatWereClosedYoung(t *testing.T) {
	f := factsWith(func(f *facts) {
		f.delays = orderclose.Delays{Default: time.Hour, ByCategory: map[string]time.Duration{"virtual": 5 * time.Minute}}
	})
	for category, want := range map[string]int{"": 1, "virtual": 0} {
		sum := AuditSummary{Statuses: map[string]int{}, ClosedBy: map[orderclose.Path]int{}}
		r := row(store.AuditClosed, func(r *store.AuditRow) { r.Category, r.CreatedAt = category, due.Add(-5*time.Minute) })
		sum.count(r, f)
		expect.Equal(t, sum.ClosedYoung, want, "orders of category %q that were closed young", category)
		expect.Equal(t, len(sum.ClosedYoungNewest), want, "their names")
	}
}

func TestJudge_EachDifferenceIsFound(t *testing.T) {
	receipt := func(r *store.AuditRow) { r.Receipt = &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second)} }
	mapped := factsWith(func(f *facts) { f.rules.Exclusive, f.rules.Overwritten = false, true })
	for what, c := range map[string]struct {
		r    store.AuditRow
		f    facts
		want string // the kinds
	}{
		"closed, and complete": {row(store.AuditClosed, nil), factsWith(nil), ""},
		"paid":                 {row(store.AuditPaid, nil), factsWith(nil), ""},
		"cancelled": {row(store.AuditOther, func(r *store.AuditRow) {
			r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "cancel", Quantity: 2}}
		}), factsWith(nil), ""},
		"shipped": {row(store.AuditPaid, func(r *store.AuditRow) {
			r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "ship", Quantity: 2}}
		}), factsWith(nil), ""},
		"open within the bound":         {row(store.AuditOpen, nil), factsWith(func(f *facts) { f.now = due.Add(30 * time.Minute) }), ""},
		"open beyond it":                {row(store.AuditOpen, nil), factsWith(nil), "still_open"},
		"open beyond it, by a service":  {row(store.AuditOpen, nil), facts{now: due.Add(time.Hour)}, "still_open"},
		"closed by a service":           {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt, r.Ledger = nil, nil }), facts{now: due}, ""},
		"no receipt":                    {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt = nil }), factsWith(nil), "no_receipt"},
		"no receipt, by the shop":       {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt, r.Ledger = nil, nil }), mapped, ""},
		"a receipt, and open":           {row(store.AuditOpen, receipt), factsWith(func(f *facts) { f.now = due }), "stray_receipt"},
		"a receipt, and cancelled":      {row(store.AuditOther, receipt), factsWith(nil), "stray_receipt"},
		"a receipt, and another status": {row(store.AuditOther, receipt), mapped, "overwritten"},
		"the same, and accepted":        {row(store.AuditOther, receipt), factsWith(func(f *facts) { f.rules.Exclusive = false }), ""},
		"a receipt, and paid":           {row(store.AuditPaid, receipt), factsWith(nil), "paid_but_closed"},
		"a receipt, paid, and reopened": {row(store.AuditPaid, func(r *store.AuditRow) { receipt(r); r.Late, r.Reopened = 1, true }), factsWith(nil), ""},
		"a receipt, paid, and refunded": {row(store.AuditPaid, func(r *store.AuditRow) { receipt(r); r.Late = 1 }), factsWith(nil), "paid_but_closed"},
		"closed, and paid before":       {row(store.AuditClosed, func(r *store.AuditRow) { r.PaidAt = true }), factsWith(nil), "paid_but_closed"},
		"early": {row(store.AuditClosed, func(r *store.AuditRow) {
			r.Receipt.ClosedAt = due.Add(-time.Millisecond)
		}), factsWith(nil), "closed_early"},
		"early, by its row":        {row(store.AuditClosed, func(r *store.AuditRow) { r.Due = due.Add(time.Minute) }), factsWith(nil), "closed_early"},
		"nothing was released":     {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger = nil }), factsWith(nil), "ledger_missing ledger_missing"},
		"one SKU was not released": {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger = r.Ledger[1:] }), factsWith(nil), "ledger_missing"},
		"released twice": {row(store.AuditClosed, func(r *store.AuditRow) {
			r.Ledger = append(r.Ledger, store.LedgerRow{SKU: "ink", Kind: "cancel", Quantity: 2})
		}), factsWith(nil), "ledger_double"},
		"too much was released":             {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger[0].Quantity = 3 }), factsWith(nil), "ledger_wrong"},
		"closed, and shipped":               {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger[0].Kind = "ship" }), factsWith(nil), "ledger_wrong"},
		"released a SKU that it never held": {row(store.AuditClosed, func(r *store.AuditRow) { delete(r.LineQuantities, "nib") }), factsWith(nil), "ledger_wrong"},
		"released, and paid": {row(store.AuditPaid, func(r *store.AuditRow) {
			r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "close", Quantity: 2}}
		}), factsWith(nil), "ledger_wrong"},
		"no lines": {row(store.AuditClosed, func(r *store.AuditRow) {
			r.Ledger = nil
		}), factsWith(func(f *facts) { f.rules.Lines = false }), ""},
	} {
		var kinds []string
		for _, f := range judge(c.r, c.f) {
			kinds = append(kinds, string(f.Kind))
			expect.That(t, f.Order == "o" && f.What != "" && f.Fix != "", "%s: %+v", what, f)
		}
		slices.Sort(kinds)
		expect.Equal(t, strings.Join(kinds, " "), c.want, "%s", what)
	}
}

func TestJudge_AStatusThatTheMappingDoesNotNameIsReported(t *testing.T) {
	r := row(store.AuditPaid, func(r *store.AuditRow) { r.Receipt = &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second)} })
	r.Part.Status, r.Part.Unlisted = "REFUNDED", true
	f := judge(r, factsWith(nil))
	expect.That(t, len(f) != 0 && strings.Contains(f[0].What, "REFUNDED, which orders.status does not name"), "%+v", f)
}

func TestJudge_AnOpenOrderMayWaitForThePaymentProvider(t *testing.T) {
	for pays, want := range map[bool]string{
		false: "orderclose order o shows why; orderclose compensate closes it",
		true:  "orderclose order o shows why; orderclose compensate asks the payment provider, and closes it unless the provider says paid or has no answer",
	} {
		f := judge(row(store.AuditOpen, nil), factsWith(func(f *facts) { f.pays = pays }))
		expect.That(t, len(f) == 1 && f[0].Fix == want, "%+v", f)
	}
}

func TestSummary_CountsWhatOthersClosedByTheTimeOfTheirClose(t *testing.T) {
	mapped := factsWith(func(f *facts) { f.rules.Exclusive, f.tolerance = false, time.Minute })
	s := AuditSummary{Statuses: map[string]int{}, ClosedBy: map[orderclose.Path]int{}}
	for _, late := range []time.Duration{-time.Hour, -time.Minute, 0, time.Minute, 61 * time.Second, 5 * time.Minute} {
		s.count(row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt, r.ClosedAt = nil, due.Add(late) }), mapped)
	}
	late := s.ClosedByOthers.LateNewest
	for i := range 7 {
		late = latestDue(late, store.AuditRow{Order: orderclose.Order{ID: fmt.Sprint(i), Due: due.Add(time.Duration(i%3) * time.Hour)}})
	}
	expect.That(t, len(late) == 5 && late[0].Order == "2" && late[3].Order == "4", "the latest due of more are %v", late)
	s.count(row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt = nil }), mapped)
	one := OrderDue{"o", due}
	expect.Same(t, s.ClosedByOthers, ByOthers{7, 1, 3, 2, 1, 300, []OrderDue{one}, []OrderDue{one, one}}, "closed by others")
}

// bareOrders is a database in which orderclose has closed nothing: it has no tables for that.
type bareOrders struct {
	manyOrders
	parts *[]store.AuditPart
}

func (bareOrders) CanAudit(context.Context) error { return errors.New("there is no table receipts") }

func (b bareOrders) AuditPage(ctx context.Context, part store.AuditPart, from, to time.Time, after orderclose.Order, limit int) ([]store.AuditRow, error) {
	*b.parts = append(*b.parts, part)
	return b.manyOrders.AuditPage(ctx, part, from, to, after, limit)
}

func TestRun_BeforeMigrateItReadsTheRowsOfOrdersOnly(t *testing.T) {
	var parts []store.AuditPart
	sum, err := Audit(t.Context(), AuditOptions{
		Store: bareOrders{manyOrders{n: 10, each: func(int) {}}, &parts}, Config: &config.Config{}, From: due, To: due.Add(time.Hour), Bound: time.Hour,
		OnFinding: func(f Finding) error { return fmt.Errorf("%+v", f) },
	})
	expect.That(t, err == nil && sum.Orders == 10 && len(sum.NotRead) == 1 && strings.Contains(sum.NotRead[0], "no table receipts"), "%+v, %v", sum, err)
	expect.That(t, len(parts) == 1 && parts[0].RowsOnly, "read %+v", parts)
}

// noon is the time at which tests ask.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// closedOrders is a store without orders that are due in the window. Its orders were closed in it.
type closedOrders struct {
	manyOrders
	rows []store.AuditRow
}

func (c closedOrders) AuditClosed(_ context.Context, _, _ time.Time, after store.ReceiptKey, _ int) (rows []store.AuditRow, last store.ReceiptKey, err error) {
	if after.OrderID == "" {
		return c.rows[:1], store.ReceiptKey{OrderID: "o"}, nil
	}
	return c.rows[1:], last, nil
}

// A paid order without a deadline, and an order that is open again: both were closed in the window.
func TestAudit_JudgesTheOrdersThatWereClosedInTheWindow(t *testing.T) {
	elsewhere := func(state store.AuditState, at time.Time) store.AuditRow {
		return row(state, func(r *store.AuditRow) {
			r.Due, r.Receipt = at, &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second), Path: orderclose.PathPipeline}
		})
	}
	db := closedOrders{manyOrders{each: func(int) {}}, []store.AuditRow{elsewhere(store.AuditPaid, orderclose.NeverDue),
		elsewhere(store.AuditOpen, due.Add(72*time.Hour)), row(store.AuditPaid, nil)}}
	var found []string
	sum, err := Audit(t.Context(), AuditOptions{Store: db, Config: &config.Config{}, From: due, To: due.Add(time.Hour), Bound: time.Hour,
		OnFinding: func(f Finding) error {
			found = append(found, string(f.Kind))
			return nil
		}})
	got := fmt.Sprint(found, sum.ClosedElsewhere, sum.FindingCount, sum.Orders)
	expect.That(t, err == nil && got == "[paid_but_closed stray_receipt] 2 2 0", "%s, %v", got, err)
}
