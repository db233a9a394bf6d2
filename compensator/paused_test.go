package compensator

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// pausingStore has paused the closing of categories, of an order, or of all orders.
type pausingStore struct {
	*fakeStore
	held   string // an order
	paused map[string]bool
	all    bool
	asked  int // orders of paused categories that were asked about
}

func (s *pausingStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) (outcomes []orderclose.Outcome, err error) {
	if s.all {
		return nil, fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, orderclose.ErrPaused)
	}
	for _, r := range requests {
		outcome := []orderclose.Outcome{{OrderID: r.OrderID, Verdict: orderclose.Paused}}
		if !s.paused[r.Category] && r.OrderID != s.held {
			if outcome, err = s.fakeStore.CloseOrders(ctx, path, []orderclose.CloseRequest{r}); err != nil {
				return nil, err
			}
		} else {
			s.mu.Lock()
			s.asked++
			s.mu.Unlock()
		}
		outcomes = append(outcomes, outcome...)
	}
	return outcomes, nil
}

// A sweep asks about the first pages of a paused category, and about its others only after a while. It closes all
// other orders, and the paused ones as soon as the pause has ended.
func TestSweep_AsksAboutFewOrdersOfAPausedCategory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pausingStore{fakeStore: newStore(3000), paused: map[string]bool{"a": true}}
		for i := range s.orders {
			if i%3 > 0 {
				s.orders[i].Category = "a"
			}
		}
		var log strings.Builder
		c := newCompensator(t, Options{Store: s, PageSize: 100, Rate: -1, Alone: true, PausesCategories: true, Grace: -1,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			s.asked = 0
			r, err := c.Sweep(t.Context(), false)
			must.That(t, err == nil && r.Paused == 2000 && s.open() == 2000 && s.asked <= pagesInParallel*100,
				"paused %d, open %d, asked about %d of the category: %v", r.Paused, s.open(), s.asked, err)
			time.Sleep(5 * time.Second)
		}
		s.paused = nil
		if r, err := c.Sweep(t.Context(), false); err != nil || r.Closed != 2000 {
			t.Fatalf("closed %d after the pause, %v", r.Closed, err)
		}
		for _, line := range []string{"sweeping is paused", "sweeping is no longer paused"} {
			expect.Equal(t, strings.Count(log.String(), line), 1, "times %q in\n%s", line, &log)
		}
	})
}

// A long sweep closes the orders whose pause ends meanwhile.
func TestSweep_AsksAgainWhetherACategoryIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pausingStore{fakeStore: newStore(2000), paused: map[string]bool{"a": true}}
		for i := range s.orders {
			s.orders[i].Category = "a"
		}
		s.slow = 2 * time.Second
		time.AfterFunc(10*time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.paused = nil
		})
		c := newCompensator(t, Options{Store: s, PageSize: 100, Grace: -1, PausesCategories: true})
		if r, err := c.Sweep(t.Context(), false); err != nil || r.Closed < 1000 || r.Paused == 0 || s.asked > 600 {
			t.Errorf("closed %d, paused %d, asked about %d during the pause: %v", r.Closed, r.Paused, s.asked, err)
		}
	})
}

// A service may hold a single order.
func TestSweep_APausedOrderSaysNothingAboutOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pausingStore{fakeStore: newStore(2000), held: "o0000"}
		for i := range s.orders {
			s.orders[i].Category = "a"
		}
		c := newCompensator(t, Options{Store: s, PageSize: 100, Grace: -1})
		r, err := c.Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Closed == 1999 && r.Paused == 1, "closed %d, paused %d, %v", r.Closed, r.Paused, err)
	})
}

// Sweeps alone meet a pause of all orders each second.
func TestSweep_LogsAPauseOfAllOrdersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pausingStore{fakeStore: newStore(10), all: true}
		var log strings.Builder
		c := newCompensator(t, Options{Store: s, Alone: true, Grace: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 10 {
			if _, err := c.Sweep(t.Context(), false); err == nil {
				t.Fatal("a paused sweep succeeded")
			}
		}
		expect.That(t, strings.Count(log.String(), "\n") == 1 && strings.Contains(log.String(), "sweeping is paused"), "want one line for ten sweeps:\n%s", &log)
		s.all = false
		if _, err := c.Sweep(t.Context(), false); err != nil || !strings.Contains(log.String(), "sweeping is no longer paused") {
			t.Errorf("%v:\n%s", err, &log)
		}
	})
}
