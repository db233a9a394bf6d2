package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func onlyOurTables(t *testing.T, s *mapped) {
	s.must(s.Migrate(t.Context()))
	s.must(s.Migrated(t.Context()))
	var printed strings.Builder
	s.must(s.WriteMigrations(&printed))
	for _, table := range []string{"orders", "order_items", "stock"} {
		_, err := s.DB().ExecContext(t.Context(), "SELECT 1 FROM "+table)
		expect.That(t, err != nil, "table %s exists", table)
		for statement := range strings.SplitSeq(withoutComments(printed.String()), ";") {
			expect.That(t, !slices.Contains(strings.Fields(strings.ReplaceAll(statement, "`", "")), table),
				"table %s is in the printed schema: %s", table, statement)
		}
	}
	s.count("SELECT COUNT(*) FROM receipts")
}

func closesOnlyDue(t *testing.T, s *mapped) {
	s.begin()
	overdue, later, paid, closed, gone := s.an(1, -time.Minute), s.an(2, time.Hour), s.an(3, -time.Minute), s.an(4, -time.Minute), s.an(5, -time.Minute)
	s.put(s.Mapping.Status.From[0], overdue, later)
	s.put(s.Paid, paid)
	s.put(s.Mapping.Status.To, closed)
	out := s.closing(later, overdue, gone, paid, closed, overdue)
	want(t, "verdicts", verdicts(out), []string{
		later.ID + " not_due", overdue.ID + " closed", gone.ID + " not_found", paid.ID + " already_paid",
		closed.ID + " already_closed", overdue.ID + " already_closed",
	})
	want(t, "due times", []time.Time{out[0].Due, out[1].Due}, []time.Time{later.Due, overdue.Due})
	expect.That(t, !out[1].At.Before(overdue.Due), "closed at %v, due %v", out[1].At, overdue.Due)
	again := s.closing(overdue)
	want(t, "verdict on a repeat", again[0].Verdict, orderclose.AlreadyClosed)
	want(t, "receipts", s.texts("SELECT order_id FROM receipts"), []string{overdue.ID})
	s.checkHistory(overdue, out[1].At)
	s.checkReleased(overdue)
	s.checkEvent(overdue, out[1].At)
	s.checkSet(s.Mapping.Set)
	for _, c := range s.Mapping.ClosedAt {
		codec := must.Get(c.Codec())(t)
		n := s.count("SELECT COUNT(*) FROM "+mapping.Quote(s.Mapping.Orders)+" WHERE "+mapping.Quote(c.Column)+" = ?", codec.Arg(out[1].At))
		want(t, "orders with the time of the close", n, 1)
	}
}

// checkSet checks that one order has the constants.
func (s *mapped) checkSet(all []mapping.ColumnValue) {
	s.Helper()
	for _, a := range all {
		want(s, "orders with "+a.Column, s.count("SELECT COUNT(*) FROM "+mapping.Quote(s.Mapping.Orders)+" WHERE "+mapping.Quote(a.Column)+" = ?", a.Value.Arg()), 1)
	}
}

// One order for each condition that it does not meet, and one that was due too early.
func mappedExcluded(t *testing.T, s *mapped) {
	if len(s.Mapping.Where) == 0 {
		t.Skip("the mapping excludes no order")
	}
	s.begin()
	overdue, paid := s.an(1, -time.Minute), s.an(3, -time.Minute)
	s.put(s.Mapping.Status.From[0], overdue)
	s.put(s.Paid, paid)
	from := overdue.Due
	var excluded []orderclose.Order
	if !s.Mapping.NotBefore.IsZero() {
		old := s.an(2, 0)
		old.Due = s.Mapping.NotBefore.Add(-time.Second)
		s.put(s.Mapping.Status.From[0], old)
		excluded, from = []orderclose.Order{old}, old.Due
	}
	for i, w := range s.Mapping.Where {
		o := s.an(10+i, -time.Minute)
		s.put(s.Mapping.Status.From[0], o)
		for _, o := range []orderclose.Order{o, paid} {
			s.exec("UPDATE "+mapping.Quote(s.Mapping.Orders)+" SET "+mapping.Quote(w.Column)+" = 77 WHERE "+mapping.Quote(s.Mapping.ID.Column)+" = ?", o.ID)
		}
		excluded = append(excluded, o)
	}
	orders := append([]orderclose.Order{overdue, paid}, excluded...)
	expected := []string{overdue.ID + " closed", paid.ID + " already_paid"}
	for _, o := range excluded {
		expected = append(expected, o.ID+" excluded")
	}
	want(t, "verdicts of a preview", verdicts(must.Get(s.PreviewClose(t.Context(), "", ask(orders...)))(t)), expected)

	page := must.Get(s.Overdue(t.Context(), s.now(), orderclose.Order{}, 10))(t)
	expect.That(t, len(page) == 1 && page[0].ID == overdue.ID, "a sweep finds %+v", page)
	s.wantTurns(s.now(), []string{overdue.ID}, 1, 2, 0)
	now, _ := s.overdueNow(0)
	want(t, "overdue orders now", len(now), 1)
	counts := map[store.AuditState]int{}
	for _, rows := range s.audited(from, s.now()) {
		for _, r := range rows {
			counts[r.Part.State]++
		}
	}
	want(t, "states of an audit", counts, map[store.AuditState]int{store.AuditOpen: 1, store.AuditExcluded: len(excluded), store.AuditPaid: 1})

	want(t, "verdicts", verdicts(s.closing(orders...)), expected)
	want(t, "orders with a receipt", s.texts("SELECT order_id FROM receipts"), []string{overdue.ID})
	if _, ok := s.Mapping.Status.Pay(); !ok {
		return
	}
	out := must.Get(s.PayOrders(t.Context(), ask(excluded...)))(t)
	for _, o := range out {
		want(t, "verdict of a payment of "+o.OrderID, o.Verdict, orderclose.AlreadyPaid)
	}
}

// One order for each step of the column's precision around now: an order is closed if its due time is not after the time of the close.
func mappedNeverBeforeDue(t *testing.T, s *mapped) {
	s.begin()
	s.Mapping = s.Mapping.WithDefaults()
	var orders []orderclose.Order
	for n := range 120 {
		o := s.an(n+1, 0)
		o.Due = s.today.Add(time.Duration(n-60) * 100 * time.Millisecond).Truncate(100 * time.Millisecond)
		orders = append(orders, o)
	}
	s.put(s.Mapping.Status.From[0], orders...)
	out := s.closing(orders...)
	for i, o := range out {
		late := o.At.Sub(orders[i].Due)
		must.That(t, !o.Due.Before(orders[i].Due.Add(-time.Second)) && !o.Due.After(orders[i].Due),
			"order %s is due at %v, and was read as %v", o.OrderID, orders[i].Due, o.Due)
		closed := o.Verdict == orderclose.Closed
		expect.That(t, closed == !o.Due.After(o.At), "order %s, due at %v, was %s at %v, %v after", o.OrderID, o.Due, o.Verdict, o.At, late)
	}
}

// A batch with orders in all tables: one fails, and nothing changes.
func mappedInOneTransaction(t *testing.T, s *mapped) {
	s.begin()
	var orders []orderclose.Order
	for n := range 12 {
		o := s.an(n+1, -time.Minute)
		o.CreatedAt = s.monthsAgo(n % 6)
		orders = append(orders, o)
	}
	s.put(s.Mapping.Status.From[0], orders...)
	drop := s.refuseReceipt(orders[7].ID)
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask(orders...))
	expect.That(t, err != nil, "the batch was closed without one order")
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), 0)
	s.must(s.Probe(t.Context()))
	drop()
	s.exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES (?, 'closed', ?, ?, 'sweep', 0, 0)",
		orders[7].ID, s.time(s.today), s.time(s.today))
	for _, o := range s.closing(orders...) {
		want(t, "verdict on "+o.OrderID, o.Verdict, map[bool]orderclose.Verdict{true: orderclose.Failed, false: orderclose.Closed}[o.OrderID == orders[7].ID])
	}
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), 12)
}

// putThroughMonths inserts ten unpaid orders into every month's table, some due at the same time, and returns the overdue orders in page order.
func (s *mapped) putThroughMonths() (orders []orderclose.Order) {
	s.Helper()
	for n := range 60 {
		o := orderclose.Order{ID: s.ID(1000 + n), CreatedAt: s.monthsAgo(5 - n/10)}
		o.Due = o.CreatedAt.Add(time.Duration(n/7) * time.Second)
		if o.Due.Before(s.today) { // the middle of this month may be in the future
			orders = append(orders, o)
		}
	}
	s.put(s.Mapping.Status.From[0], orders...)
	return orders
}

func mappedPages(t *testing.T, s *mapped) {
	s.begin()
	ids := idsDue(s.putThroughMonths(), time.Time{}, s.today)
	paid := orderclose.Order{ID: s.ID(2000), CreatedAt: s.monthsAgo(1), Due: s.monthsAgo(1)}
	s.put(s.Paid, paid)
	for _, limit := range []int{1, 7, 100} {
		want(t, fmt.Sprintf("orders in pages of %d", limit), s.pages(s.now(), limit, ignorePage), ids)
	}
	s.wantTurns(s.now(), ids, 7, 100)
	want(t, "orders while they are closed", s.pages(s.now(), 7, func(page []orderclose.Order) {
		for _, o := range s.closing(page...) {
			want(t, "verdict on "+o.OrderID, o.Verdict, orderclose.Closed)
		}
	}), ids)
	want(t, "orders afterwards", s.pages(s.now(), 7, ignorePage), nil)
}

func mappedNoDue(t *testing.T, s *mapped) {
	s.begin()
	without, overdue := s.an(1, 0), s.an(2, -time.Minute)
	without.Due = time.Time{}
	s.put(s.Mapping.Status.From[0], without, overdue)
	out := s.closing(without, overdue)
	if s.DueFrom == "" && s.due.Oldest() == any(int64(1)) { // its due time is 0, and not NULL, which means never
		want(t, "verdicts", verdicts(out), []string{without.ID + " failed", overdue.ID + " closed"})
		expect.That(t, out[0].Err != nil, "the outcome has no error")
	} else {
		want(t, "verdicts", verdicts(out), []string{without.ID + " not_due", overdue.ID + " closed"})
		want(t, "NULL means never", orderclose.IsNever(out[0].Due), true)
	}
	want(t, "orders in pages", s.pages(s.now(), 10, ignorePage), nil)
}

// A sweep finds rows with ids that no record can have.
func mappedRefusedIDs(t *testing.T, s *mapped) {
	s.begin()
	if s.Mapping.WithDefaults().ID.Type != mapping.Text {
		return
	}
	var orders []orderclose.Order
	for i, id := range []string{" odd1", "odd\t2", "odd 3"} {
		o := s.an(i+1, -time.Minute)
		o.ID = id
		orders = append(orders, o)
	}
	s.put(s.Mapping.Status.From[0], orders[:2]...)
	if !s.lacks(trials) {
		_, err := s.TryClose(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), orderclose.ErrInvalidID.Error()), "a trial: %v", err)
	}
	s.put(s.Mapping.Status.From[0], orders[2])
	out := s.closing(orders...)
	want(t, "verdicts", verdicts(out), []string{" odd1 not_found", "odd\t2 not_found", "odd 3 closed"})
	expect.Is(t, out[0].Err, orderclose.ErrInvalidID, "the outcome of a refused id")
}

// An order whose due time means never, in the zone and precision of the column.
func mappedNever(t *testing.T, s *mapped) {
	s.begin()
	if s.DueFrom != "" || s.Mapping.Due.Type == mapping.Timestamp {
		t.Skip("the column cannot hold the time")
	}
	never, overdue := s.an(1, 0), s.an(2, -time.Minute)
	never.Due = orderclose.NeverDue
	s.put(s.Mapping.Status.From[0], never, overdue)
	out := s.closing(never, overdue)
	want(t, "verdicts", verdicts(out), []string{never.ID + " not_due", overdue.ID + " closed"})
	want(t, "its due time means never", orderclose.IsNever(out[0].Due), true)
	counts := must.Get(s.CountOrders(t.Context()))(t)
	want(t, "counts", []int64{counts.From, counts.Overdue, counts.Waiting, counts.Never}, []int64{1, 0, 0, 1})
}

// Records whose times are of another month than the row, and a record without times.
func mappedOtherMonth(t *testing.T, s *mapped) {
	s.begin()
	var orders []orderclose.Order
	for n := range 4 {
		o := s.an(n+1, -time.Minute)
		o.CreatedAt = s.monthsAgo(2)
		orders = append(orders, o)
	}
	s.put(s.Mapping.Status.From[0], orders...)
	orders[0].CreatedAt, orders[1].CreatedAt, orders[2].CreatedAt, orders[3].CreatedAt = s.monthsAgo(1), s.monthsAgo(3), time.Time{}, s.monthsAgo(20)
	orders[2].Due = time.Time{}
	for _, o := range s.closing(orders...) {
		want(t, "verdict on "+o.OrderID, o.Verdict, orderclose.Closed)
	}
}

func tablesFit(t *testing.T, s *mapped) {
	s.needs(describedTables)
	err := s.CheckMapping(t.Context())
	expect.That(t, err != nil, "missing tables are not reported")
	s.begin()
	s.must(s.CheckMapping(t.Context()))
	overdue := s.an(1, -time.Minute)
	s.put(s.Mapping.Status.From[0], overdue)
	refused := func(why, when string) {
		t.Helper()
		_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask(overdue))
		expect.That(t, errors.Is(err, orderclose.ErrNoOrderAtFault) && strings.Contains(err.Error(), why), "a close %s: %v", when, err)
	}
	table := s.table(s.Mapping.Orders, s.today)
	alter, column := "ALTER TABLE "+mapping.Quote(table), mapping.Quote(s.Mapping.Due.Column)
	other := map[mapping.TimeType]string{mapping.DateTime: " MODIFY " + column + " TIMESTAMP NULL", mapping.Timestamp: " MODIFY " + column + " DATETIME"}
	if s.Dialect() == store.Postgres {
		other[mapping.DateTime] = " ALTER COLUMN " + column + " TYPE timestamptz"
		other[mapping.TimestampTZ] = " ALTER COLUMN " + column + " TYPE timestamp"
	}
	if change := other[s.Mapping.Due.Type]; change != "" && (s.DueFrom == "" || s.Mapping.ByRule) {
		s.exec(alter + change)
		refused("has the type", "by times of another type")
	}
	s.exec(alter + " DROP COLUMN " + column)
	missing := "there is no column " + table + "." + s.Mapping.Due.Column
	if s.Month == "" {
		expect.Says(t, s.CheckMapping(t.Context()), missing, "without the due column")
		refused(missing, "on tables that do not fit")
	} else { // the other months fit
		s.must(s.CheckMapping(t.Context()))
		expect.Says(t, s.SetAside(true), missing, "without the due column")
		for _, o := range must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, ask(overdue)))(t) {
			s.wantAside(o, "on a table that does not fit")
		}
	}
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), 0)
}
