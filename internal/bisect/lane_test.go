package bisect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// For any orders of which some fail: exactly these fail alone, the others succeed once, and each bad one costs a few calls.
func TestLane_FindsTheOrdersThatFail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 600).Draw(t, "orders")
		bad := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, min(n, 20), func(i int) int { return i }).Draw(t, "bad")
		var mu sync.Mutex
		calls, done, failed := 0, map[int]int{}, []int{}
		l := Lane[int]{
			Call: func(_ context.Context, part []int) error {
				mu.Lock()
				defer mu.Unlock()
				calls++
				if slices.ContainsFunc(part, func(i int) bool { return slices.Contains(bad, i) }) {
					return errBad
				}
				for _, i := range part {
					done[i]++
				}
				return nil
			},
			Failed: func(orders []int, _ error) { failed = append(failed, orders...) },
		}
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		l.Add(all)
		l.Start(context.Background())
		must.That(t, l.Wait() == nil && l.Waiting() == 0, "orders are left")
		slices.Sort(failed)
		slices.Sort(bad)
		must.That(t, slices.Equal(failed, bad), "blamed %v, want %v", failed, bad)
		for _, i := range all {
			must.That(t, done[i] == 1 || slices.Contains(bad, i), "order %d was closed %d times", i, done[i])
		}
		must.That(t, calls <= LaneCalls*(1+4*len(bad)), "%d calls for %d bad orders of %d", calls, len(bad), n)
	})
}

// No order is at fault for a failure: nothing more is tried, and nothing is lost.
func TestLane_StopsWhenNoOrderIsAtFault(t *testing.T) {
	down := fmt.Errorf("%w: refused", orderclose.ErrNoOrderAtFault)
	l := Lane[int]{
		Call:   func(context.Context, []int) error { return down },
		Failed: func(orders []int, err error) { t.Errorf("%v failed with %v", orders, err) },
	}
	l.Add([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	l.Start(t.Context())
	must.That(t, errors.Is(l.Wait(), down) && l.Waiting() == 10, "%d orders wait", l.Waiting())
	down = nil
	l.Start(t.Context())
	must.That(t, l.Wait() == nil && l.Waiting() == 0, "%d orders wait after the store works again", l.Waiting())
}

// While orders that were never tried keep coming, those of Again have one of the calls. Of those that fail again, two calls are made.
func TestLane_KeepsACallForOrdersThatFailedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		pages, calls, left := 0, 0, []int(nil)
		l := Lane[int]{
			Call: func(ctx context.Context, part []int) error {
				if time.Sleep(time.Second); part[0] < 1000 {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				calls++
				return errBad
			},
			Failed: func(orders []int, _ error) { left = append(left, orders...) },
		}
		l.Again = func() ([]int, bool) {
			if pages++; pages > 3 {
				return nil, false
			}
			return []int{1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009}, true
		}
		for range 60 {
			l.Add(make([]int, 100))
			l.Start(ctx)
			time.Sleep(time.Second)
		}
		cancel()
		_ = l.Wait()
		must.That(t, len(left) == 30 && calls == 6, "%d orders were given up after %d calls", len(left), calls)
	})
}

func TestLimits_FollowTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		must.That(t, l.Of(1) == leastLimit && l.Of(500) == leastLimit, "at first %v and %v", l.Of(1), l.Of(500))
		for want := range slices.Values([]time.Duration{3 * time.Second, 6 * time.Second, CallTimeout, CallTimeout}) {
			limit := l.Of(1)
			time.Sleep(limit)
			l.Ended(1, limit, limit, false)
			must.That(t, l.Of(1) == want, "%v after a call that reached %v", l.Of(1), limit)
		}
		l.Ended(1, CallTimeout, 2*time.Second, true)
		must.That(t, l.Of(1) == 6*time.Second && l.Of(500) == 6*time.Second, "%v and %v after a call of 2 s", l.Of(1), l.Of(500))
		l.Ended(500, leastLimit, leastLimit, false)
		must.That(t, l.Of(500) == 6*time.Second, "%v after a page that reached its limit", l.Of(500))
		for range 5 {
			l.Ended(1, CallTimeout, time.Millisecond, true)
		}
		must.That(t, l.Of(1) == leastLimit, "%v after quick calls", l.Of(1))
	})
}
