package compensator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// categoriesStore pauses categories, and counts the pages that are read and the orders that are asked about.
type categoriesStore struct {
	pausingStore
	pages int
}

func (s *categoriesStore) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	s.mu.Lock()
	s.pages++
	s.mu.Unlock()
	return s.fakeStore.Overdue(ctx, cutoff, after, limit)
}

// add adds overdue orders of a category.
func (s *categoriesStore) add(category string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		s.orders = append(s.orders, orderclose.Order{ID: fmt.Sprint(category, i), Category: category, Due: time.Now().Add(time.Duration(i)*time.Second - time.Hour)})
	}
}

func (s *categoriesStore) pause(categories ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	paused := map[string]bool{}
	for _, c := range categories {
		paused[c] = true
	}
	s.paused = paused
}

// pauses is Options.Pauses.
func (s *categoriesStore) pauses(context.Context) (on []Pause, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.paused {
		on = append(on, Pause{Path: orderclose.PathSweep, Category: c})
	}
	slices.SortFunc(on, func(a, b Pause) int { return cmp.Compare(a.Category, b.Category) })
	return on, nil
}

// costs returns how many pages were read, and how many paused orders were asked about, since the last call.
func (s *categoriesStore) costs() (pages, asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pages, asked, s.pages, s.asked = s.pages, s.asked, 0, 0
	return pages, asked
}

// pauseFleet runs two compensators on a store with 1,000 orders of each of two paused categories.
func pauseFleet(t *testing.T, test func(f *fleet, s *categoriesStore, h *fakeHistory)) {
	t.Helper()
	s := &categoriesStore{pausingStore: pausingStore{fakeStore: &fakeStore{}}}
	inFleet(t, s.fakeStore, func(f *fleet) {
		h := &fakeHistory{}
		s.add("a", 1000)
		s.add("b", 1000)
		s.pause("a", "b")
		for range 2 {
			f.start(Options{Store: s, PageSize: 100, Rate: -1, PausesCategories: true, Pauses: s.pauses, History: h.history()})
		}
		time.Sleep(5 * time.Minute)
		test(f, s, h)
	})
}

// The records of these orders are lost. During the pause looks read few pages, and ask about no order. The keeper closes the orders
// when it sees that the pause has ended.
func TestRun_OrdersOfAPausedCategoryAreClosedSoonAfterThePause(t *testing.T) {
	pauseFleet(t, func(f *fleet, s *categoriesStore, h *fakeHistory) {
		time.Sleep(time.Until(f.next()) + 5*time.Minute)
		h.take()
		s.costs()
		time.Sleep(50 * time.Minute)
		pages, asked := s.costs()
		expect.That(t, pages <= 2*51*8 && asked == 0, "in 50 minutes of the pause %d pages are read, and %d orders asked about", pages, asked)
		got := h.take()
		expect.That(t, len(got) == 0, "sweeps are recorded during the pause: %+v", got)
		finished, _, _ := f.log.LastSweep(t.Context(), "order-close")
		expect.That(t, time.Since(finished) < time.Hour, "no sweep has finished for %v", time.Since(finished))

		time.Sleep(time.Until(f.next()) + 5*time.Minute)
		h.take()
		s.pause("a")
		time.Sleep(lookAtRest)
		expect.Equal(t, s.open(), 1000, "open orders after the pause of one category of two")
		s.pause()
		time.Sleep(2 * time.Minute)
		expect.Equal(t, s.open(), 0, "open orders after both pauses")
		closed := 0
		for _, sweep := range h.take() {
			closed += sweep.Closed
			expect.That(t, sweep.Found == sweep.Closed && sweep.Why == wire.SweepOverdue && !sweep.OldestDue.IsZero(), "%+v", sweep)
		}
		expect.Equal(t, closed, 2000, "orders that the records of sweeps count as closed")
	})
}

// The process that swept during the pause is replaced before the pause ends, as when the fix of an incident is deployed.
func TestRun_AnotherProcessClosesTheOrdersOfAPausedCategory(t *testing.T) {
	pauseFleet(t, func(f *fleet, s *categoriesStore, _ *fakeHistory) {
		f.stop(0)
		f.stop(1)
		f.start(Options{Store: s, PageSize: 100, Rate: -1, PausesCategories: true, Pauses: s.pauses})
		time.Sleep(20 * time.Minute)
		s.pause()
		time.Sleep(3 * time.Minute)
		expect.Equal(t, s.open(), 0, "open orders after the pause")

		s.add("c", 100)
		s.pause("c")
		time.Sleep(time.Until(f.next()) + 90*time.Second)
		f.stop(2)
		s.pause()
		f.start(Options{Store: s, PageSize: 100, Rate: -1, PausesCategories: true, Pauses: s.pauses})
		time.Sleep(3 * time.Minute)
		expect.Equal(t, s.open(), 0, "open orders after a pause that ended while no process ran")
	})
}
