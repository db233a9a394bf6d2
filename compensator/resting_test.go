package compensator

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestResting_DoublesUntilAnOrderIsClosed(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r, a := resting{}, orderclose.Order{ID: "a"}
	for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.PaymentPending}, now, false)
		expect.That(t, r.rests(a, now.Add(want-1)) && !r.rests(orderclose.Order{ID: "b"}, now), "after %v the rest has ended, or another order rests", want)
		now = now.Add(want)
		expect.That(t, !r.rests(a, now), "the order rests after %v", want)
	}
	for range 20 {
		r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Failed}, now, false)
	}
	expect.Equal(t, r["a"].last, longestRest, "the longest rest")
	if r.forget(now.Add(longestRest)); len(r) != 1 {
		t.Error("a resting order was forgotten")
	}
	if r.forget(now.Add(2*longestRest + 1)); len(r) != 0 {
		t.Error("an order that no sweep finds is remembered")
	}
	r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Failed}, now, false)
	if r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Closed}, now, false); len(r) != 0 {
		t.Error("a closed order rests")
	}
	r.tried(orderclose.Outcome{OrderID: "b", Verdict: orderclose.NotFound}, now, false)
	expect.That(t, r.rests(orderclose.Order{ID: "b"}, now), "an order whose id is refused is tried by each sweep")
	delete(r, "b")
	r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Paused}, now, false)
	expect.That(t, len(r) == 0, "an order of a paused category rests")
	r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Paused}, now, true)
	expect.That(t, r.rests(a, now), "an order that the store alone knows to be paused does not rest")
}
