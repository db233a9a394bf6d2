package bisect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// failing is a Store that fails each batch with one of some orders, and closes the others.
type failing struct {
	testkit.Store
	bad map[string]error
}

func newFailing() *failing {
	s := &failing{bad: map[string]error{}}
	s.On = func(_ context.Context, requests []orderclose.CloseRequest) error {
		for _, r := range requests {
			if err := s.bad[r.OrderID]; err != nil {
				return fmt.Errorf("closing: %w", err)
			}
		}
		return nil
	}
	return s
}

// probed is the store with a probe.
func (s *failing) probed(probe func(context.Context) error) testkit.ProbedStore {
	return testkit.ProbedStore{Store: &s.Store, Probes: probe}
}

var errBad = errors.New("no stock row")

// For any set of bad orders, exactly these are blamed. The others are closed once, and each bad order costs a few calls.
func TestBisect_BlamesOnlyBadOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "orders")
		s := newFailing()
		requests := make([]orderclose.CloseRequest, n)
		for i := range requests {
			requests[i].OrderID = strconv.Itoa(i)
			switch rapid.IntRange(0, 9).Draw(t, "fate") {
			case 0:
				s.bad[requests[i].OrderID] = errBad
			case 1:
				s.bad[requests[i].OrderID] = orderclose.ErrContended
			}
		}
		out, err := Bisect(t.Context(), s.probed(func(context.Context) error { return nil }), orderclose.PathPipeline, requests)
		closed := map[string]int{}
		for _, id := range s.Closed() {
			closed[id]++
		}
		must.That(t, err == nil && len(out) == n, "%d outcomes, %v", len(out), err)
		for i, o := range out {
			want := orderclose.Closed
			switch s.bad[o.OrderID] {
			case errBad:
				want = orderclose.Failed
			case orderclose.ErrContended:
				want = orderclose.Contended
			}
			must.That(t, o.OrderID == requests[i].OrderID && o.Verdict == want && (want == orderclose.Closed || errors.Is(o.Err, s.bad[o.OrderID])),
				"outcome %d is %+v, want %s", i, o, want)
			must.That(t, want != orderclose.Closed || closed[o.OrderID] == 1, "order %s was closed %d times", o.OrderID, closed[o.OrderID])
		}
		expect.AtMost(t, len(s.Batches()), 1+len(s.bad)*2*7, "calls for %d bad orders of %d, where 64 are halved six times", len(s.bad), n)
	})
}

func TestBisect_BlamesNoOrderWhileTheProbeFails(t *testing.T) {
	s, away := newFailing(), errors.New("disk full")
	s.bad["o1"] = errBad
	out, err := Bisect(t.Context(), s.probed(func(context.Context) error { return away }), orderclose.PathSweep, named("o", 2))
	expect.That(t, out == nil && errors.Is(err, orderclose.ErrUnavailable) && errors.Is(err, errBad) && errors.Is(err, away), "%v, %v", out, err)
}
