package closing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// fakeStore fails each batch that contains a bad order, and closes the others.
type fakeStore struct {
	bad    map[string]error
	away   error // error of Probe
	calls  int
	closed map[string]int
}

func (s *fakeStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	s.calls++
	for _, r := range requests {
		if err := s.bad[r.OrderID]; err != nil {
			return nil, fmt.Errorf("closing: %w", err)
		}
	}
	out := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		s.closed[r.OrderID]++
		out[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed}
	}
	return out, nil
}

func (s *fakeStore) Probe(context.Context) error { return s.away }

var errBad = errors.New("no stock row")

// For any set of bad orders, exactly these are blamed. The others are closed once, and each bad order costs a few calls.
func TestBisect_BlamesOnlyBadOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "orders")
		s := &fakeStore{bad: map[string]error{}, closed: map[string]int{}}
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
		out, err := Bisect(t.Context(), s, orderclose.PathPipeline, requests)
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
			got := s.closed[o.OrderID]
			must.That(t, want != orderclose.Closed || got == 1, "order %s was closed %d times", o.OrderID, got)
		}
		if most := 1 + len(s.bad)*2*7; s.calls > most { // 64 orders are halved six times
			t.Fatalf("%d calls for %d bad orders of %d", s.calls, len(s.bad), n)
		}
	})
}

func TestBisect_BlamesNoOrderWhileTheProbeFails(t *testing.T) {
	s := &fakeStore{bad: map[string]error{"b": errBad}, away: errors.New("disk full"), closed: map[string]int{}}
	out, err := Bisect(t.Context(), s, orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "a"}, {OrderID: "b"}})
	expect.That(t, out == nil && errors.Is(err, orderclose.ErrUnavailable) && errors.Is(err, errBad) && errors.Is(err, s.away),
		"%v, %v; want ErrUnavailable, and both causes", out, err)
}
