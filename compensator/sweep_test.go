package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// fakeStore holds overdue orders in memory. Its clock is the synctest bubble's.
type fakeStore struct {
	mu     sync.Mutex
	orders []orderclose.Order // unpaid
	bad    map[string]bool
	causes map[string]error // why a close with an order fails
	paid   map[string]bool  // paid between the read of the page and the close
	slow   time.Duration    // duration of each page
	locked map[string]int   // how many closes find the order locked
	sweeps int
}

func newStore(n int) *fakeStore {
	s := &fakeStore{}
	for i := range n {
		s.orders = append(s.orders, orderclose.Order{ID: fmt.Sprintf("o%04d", i), Due: time.Now().Add(time.Duration(i/3-n) * time.Second)})
	}
	return s
}

func (s *fakeStore) Now(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeps++
	return time.Now(), nil
}

func (s *fakeStore) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.slow):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	byDue := func(a, b orderclose.Order) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) }
	slices.SortFunc(s.orders, byDue)
	var page []orderclose.Order
	for _, o := range s.orders {
		if len(page) < limit && !o.Due.After(cutoff) && byDue(o, after) > 0 {
			page = append(page, o)
		}
	}
	return page, nil
}

func (s *fakeStore) CloseOrders(_ context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path != orderclose.PathSweep {
		return nil, fmt.Errorf("path %s", path)
	}
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		if err := s.causes[r.OrderID]; err != nil {
			return nil, err
		}
		if s.bad[r.OrderID] {
			return nil, errors.New("no stock row")
		}
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, At: time.Now()}
		switch {
		case s.paid[r.OrderID]:
			outcomes[i].Verdict = orderclose.AlreadyPaid
		case s.locked[r.OrderID] > 0:
			s.locked[r.OrderID]--
			outcomes[i].Verdict = orderclose.Contended
		}
	}
	s.orders = slices.DeleteFunc(s.orders, func(o orderclose.Order) bool {
		return slices.ContainsFunc(outcomes, func(a orderclose.Outcome) bool { return a.OrderID == o.ID && a.Verdict != orderclose.Contended })
	})
	return outcomes, nil
}

func (s *fakeStore) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.orders)
}

func newCompensator(t *testing.T, o Options) *Compensator {
	t.Helper()
	c := must.Get(New(o))(t)
	return c
}

func TestSweep_ClosesEveryPageOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(25)
		s.bad, s.paid = map[string]bool{"o0007": true}, map[string]bool{"o0008": true}
		r := must.Get(newCompensator(t, Options{Store: s, PageSize: 10, Grace: -1}).Sweep(t.Context(), false))(t)
		expect.That(t, r.Found == 25 && r.Pages == 3 && r.Closed == 23 && r.AlreadyPaid == 1 && r.Failed == 1 && r.Lock == "none", "%+v", r)
		expect.That(t, len(r.Failures) == 1 && r.Failures[0].OrderID == "o0007" && s.open() == 1, "failures %v, %d open; want o0007 alone", r.Failures, s.open())
	})
}

func TestSweep_AsksAgainForLockedOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(25)
		s.locked = map[string]int{"o0003": 3, "o0014": 9}
		counts := newCounts()
		r := must.Get(newCompensator(t, Options{Store: s, PageSize: 10, Grace: -1, Registerer: counts.Metrics}).Sweep(t.Context(), false))(t)
		expect.That(t, r.Found == 25 && r.Closed == 24 && r.Failed == 1 && s.locked["o0014"] == 5 && s.open() == 1,
			"%+v, %d open, locks left %v; want o0014 alone open, asked for four times", r, s.open(), s.locked)
		expect.Equal(t, counts.Value("close_total", "path", "sweep", "result", "contended"), 7, "contended answers")
	})
}

func TestSweep_LeavesTheGraceToThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{orders: []orderclose.Order{
			{ID: "fresh", Due: time.Now().Add(-59 * time.Second)}, {ID: "missed", Due: time.Now().Add(-time.Minute)},
		}}
		r, err := newCompensator(t, Options{Store: s}).Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Closed == 1 && s.open() == 1 && s.orders[0].ID == "fresh", "%+v, %v, open %v", r, err, s.orders)
	})
}

func TestSweep_ADryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(12)
		r, err := newCompensator(t, Options{Store: s, PageSize: 5, Grace: -1}).Sweep(t.Context(), true)
		expect.That(t, err == nil && r.Found == 12 && r.DryRun && s.open() == 12, "%+v, %v, %d open", r, err, s.open())
	})
}

func TestReport_TheLogCountsTheOrdersThatStayOpen(t *testing.T) {
	got := (Report{Found: 3, PaymentPending: 2, Paused: 1}).LogValue().String()
	expect.That(t, strings.Contains(got, "payment_pending=2 paused=1"), "%v", got)
}

// The first order of each cause is logged once, again if what was found differs, and again after an hour. The record of a sweep has
// the orders that failed, how often, and since when.
func TestSweep_NamesTheOrdersThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log, h := newStore(3), &strings.Builder{}, &fakeHistory{}
		pen, ink := errors.New(`stock_row_missing: SKU "pen" has no row in table g`), errors.New(`stock_row_missing: SKU "ink" has no row in table g`)
		s.causes = map[string]error{"o0001": pen, "o0002": pen}
		c := newCompensator(t, Options{Store: s, Grace: -1, History: h.history(), Logger: slog.New(slog.NewTextHandler(log, nil))})
		began := time.Now().UTC()
		sweep := func(times, lines int, says string) {
			t.Helper()
			log.Reset()
			r := must.Get(c.Sweep(t.Context(), false))(t)
			last := h.take()[0].Failures
			expect.Same(t, last, r.Failures, "recorded failures")
			f := r.Failures[0]
			expect.That(t, f.Times == times && f.Cause == "stock_row_missing" && f.Since.Equal(began), "%+v, want %d times since %v", f, times, began)
			got := log.String()
			expect.That(t, strings.Count(got, "order not closed") == lines && strings.Contains(got, says), "%d lines and %q wanted: %s", lines, says, got)
			time.Sleep(time.Minute)
		}
		sweep(1, 1, `order=o0001 cause=stock_row_missing detail="stock_row_missing: SKU \"pen\" has no row in table g" times=1`)
		sweep(2, 0, "")
		s.causes["o0001"] = ink
		sweep(3, 1, `detail="stock_row_missing: SKU \"ink\" has no row in table g" times=3`)
		sweep(4, 0, "")
		time.Sleep(time.Hour)
		sweep(5, 1, "times=5")
		delete(s.causes, "o0001")
		log.Reset()
		must.Get(c.Sweep(t.Context(), false))(t) // the order that was named is closed
		expect.That(t, !strings.Contains(log.String(), "order not closed"), "%s", log)
		h.take()
		sweep(7, 1, "order=o0002")
	})
}

// A sweep alone leaves failed orders out for a while. They are not forgotten meanwhile, nor named again.
func TestSweep_NamesARestingOrderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newStore(1), &strings.Builder{}
		s.causes = map[string]error{"o0000": errors.New("no_due_time: none")}
		c := newCompensator(t, Options{Store: s, Grace: -1, Alone: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
		for range 60 {
			must.Get(c.Sweep(t.Context(), false))(t)
			time.Sleep(5 * time.Second)
		}
		expect.That(t, strings.Count(log.String(), "order not closed") == 1 && c.lastFailed["o0000"].Times > 3, "%+v, %s", c.lastFailed, log)
	})
}
