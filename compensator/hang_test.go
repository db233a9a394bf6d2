package compensator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// hangingStore hangs on some orders.
type hangingStore struct {
	*fakeStore
	on    func(id string) bool
	calls int
}

func (s *hangingStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	for _, r := range requests {
		if s.on(r.OrderID) {
			time.Sleep(3 * time.Second)
			return nil, fmt.Errorf("%w: no answer in time", orderclose.ErrUnavailable)
		}
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

// Such orders delay no others, wherever they are in the sweep. They are in the
// report, and the sweep finishes. So does the next sweep, which finds only them.
func TestSweep_OrdersOnWhichTheStoreHangsDelayNoOthers(t *testing.T) {
	for name, bad := range map[string][]string{
		"one":             {"o0700"},
		"the first":       {"o0000", "o0001"},
		"on two pages":    {"o0700", "o0950"},
		"many on a page":  {"o0410", "o0420", "o0430", "o0440", "o0450", "o0460", "o0470", "o0480", "o0490"},
		"the last of all": {"o1199"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs := map[string]bool{}
				for _, id := range bad {
					hangs[id] = true
				}
				s := &hangingStore{fakeStore: newStore(1200), on: func(id string) bool { return hangs[id] }}
				c := newCompensator(t, Options{Store: s, PageSize: 200, Grace: -1})
				r, err := c.Sweep(t.Context(), false)
				must.That(t, err == nil && r.Closed == 1200-len(bad) && r.Failed == len(bad) && len(r.Failures) == len(bad),
					"closed %d, failed %d: %v", r.Closed, r.Failed, err)
				expect.That(t, r.Took() <= 10*time.Minute, "it took %v", r.Took())
				if r, err = c.Sweep(t.Context(), false); err != nil || r.Failed != len(bad) {
					t.Errorf("the next sweep: failed %d, %v", r.Failed, err)
				}
			})
		})
	}
}

// Whole pages on which the store hangs may end a sweep before it reaches the pages
// after them. The next sweep reaches these.
func TestSweep_ContinuesAfterThePagesThatWereGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingStore{fakeStore: newStore(1600), on: func(id string) bool { return id < "o0600" }}
		c := newCompensator(t, Options{Store: s, PageSize: 100, Grace: -1})
		for range 4 {
			r, err := c.Sweep(t.Context(), false)
			t.Logf("closed %d, failed %d, open %d: %v", r.Closed, r.Failed, s.open(), err)
		}
		expect.AtMost(t, s.open(), 600, "open orders after four sweeps, those on which the store hangs")
	})
}

// The sweep fails after a few calls and blames no order.
func TestSweep_FailsSoonIfTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		s := &hangingStore{fakeStore: newStore(3000), on: func(string) bool { return down }}
		c := newCompensator(t, Options{Store: s, PageSize: 100, Grace: -1})
		for range 3 {
			s.calls = 0
			r, err := c.Sweep(t.Context(), false)
			expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && r.Failed == 0 && s.calls <= 10 && r.Took() <= time.Minute,
				"failed %d after %d calls in %v: %v", r.Failed, s.calls, r.Took(), err)
		}
		down = false
		expect.Equal(t, must.Get(c.Sweep(t.Context(), false))(t).Closed, 3000, "closed when the store works again")
	})
}
