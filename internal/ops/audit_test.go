package ops

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
)

// manyOrders is a database with n orders, made when a page is read. Every tenth order has no
// receipt.
type manyOrders struct {
	AuditStore
	n    int
	each func(done int)
}

func (e manyOrders) Now(context.Context) (time.Time, error) { return due.Add(time.Hour), nil }
func (e manyOrders) AuditRules() store.AuditRules {
	return store.AuditRules{Exclusive: true, Lines: true}
}
func (e manyOrders) PendingEvents(context.Context, func(string)) error { return nil }
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

// TestRun_MemoryDoesNotGrowWithTheOrders, nor with the findings: it counts heap objects
// early and late.
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
	sum, err := Audit(t.Context(), AuditOptions{Store: db, Config: &config.Config{}, From: due, To: due.Add(time.Hour), Bound: time.Hour, OnFinding: func(f Finding) error {
		found++
		return nil
	}})
	if err != nil || sum.Orders != n || sum.FindingCount != n/10 || sum.Findings[NoReceipt] != found {
		t.Fatalf("%+v, %v", sum, err)
	}
	if early, late := objects[n/10], objects[n/10*9]; late > early+5000 {
		t.Errorf("%d objects after %d orders, %d after %d", early, n/10, late, n/10*9)
	}
}

func TestRun_EndsWithTheErrorOfFound(t *testing.T) {
	full := errors.New("the disk is full")
	db := manyOrders{n: 5000, each: func(int) {}}
	_, err := Audit(t.Context(), AuditOptions{Store: db, Config: &config.Config{}, From: due, To: due.Add(time.Hour), OnFinding: func(Finding) error { return full }})
	if !errors.Is(err, full) {
		t.Error(err)
	}
}

func TestHashes_KeepEightBytesOfEach(t *testing.T) {
	h := newHashes()
	for i := range 10_000 {
		h.add(fmt.Sprint(i % 5000))
	}
	h.seal()
	if len(h.all) != 5000 || !h.has("4999") || h.has("5000") {
		t.Errorf("%d are kept", len(h.all))
	}
}

func TestSummary_CountsEventsThatAreNotJudged(t *testing.T) {
	s := AuditSummary{Statuses: map[string]int{}, ClosedBy: map[orderclose.Path]int{}}
	for _, f := range []facts{factsWith(nil), factsWith(func(f *facts) { f.eventsFrom = due.Add(time.Minute) })} {
		s.count(row(store.AuditClosed, nil), f, false, true)
	}
	s.count(row(store.AuditOpen, nil), factsWith(func(f *facts) { f.now = due }), false, true)
	s.count(row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt = nil }), factsWith(nil), true, true)
	got := fmt.Sprint(s.Orders, s.ClosedBy, s.EventsUnjudged, s.OpenWithinBound, s.NoRecord, s.ClosedByOthers)
	if want := "4 map[pipeline:2] 1 1 2 1"; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSummary_CountsLatePaymentsAndMissingRechecks(t *testing.T) {
	late := factsWith(func(f *facts) {
		f.notRechecked = []span{{due, due.Add(time.Second)}, {due.Add(time.Second), due.Add(time.Minute)}}
	})
	s := AuditSummary{Statuses: map[string]int{}, ClosedBy: map[orderclose.Path]int{}}
	for _, change := range []func(r *store.AuditRow){nil, func(r *store.AuditRow) { r.Late, r.Receipt.ClosedAt = 2, due.Add(time.Minute) }, func(r *store.AuditRow) { r.Late, r.LateOpen = 2, 1 }} {
		s.count(row(store.AuditClosed, change), late, true, true)
	}
	if got := fmt.Sprint(s.LatePayments, s.LateUnresolved, s.NotRechecked); got != "2 1 2" {
		t.Errorf("%s late payments, unresolved ones and orders without a recheck, want 2 1 2", got)
	}
}
