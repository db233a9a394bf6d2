package compensator

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestResting_DoublesUntilAnOrderIsClosed(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := resting{}
	pages := [][]orderclose.Order{{{ID: "a"}, {ID: "b"}}, {{ID: "a"}}}
	for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.PaymentPending}, now)
		if left := r.without(pages, now.Add(want-1)); len(left) != 1 || len(left[0]) != 1 || left[0][0].ID != "b" {
			t.Fatalf("after %v: %v", want, left)
		}
		now = now.Add(want)
		if left := r.without(pages, now); len(left) != 2 || len(left[0]) != 2 {
			t.Fatalf("at the end of %v: %v", want, left)
		}
	}
	for range 20 {
		r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Failed}, now)
	}
	expect.Equal(t, r["a"].last, longestRest, "the longest rest")
	if r.forget(now.Add(longestRest)); len(r) != 1 {
		t.Error("a resting order was forgotten")
	}
	if r.forget(now.Add(2*longestRest + 1)); len(r) != 0 {
		t.Error("an order that no sweep finds is remembered")
	}
	r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Failed}, now)
	if r.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Closed}, now); len(r) != 0 {
		t.Error("a closed order rests")
	}
	var none resting // of a compensator beside a pipeline
	none.tried(orderclose.Outcome{OrderID: "a", Verdict: orderclose.Failed}, now)
	expect.That(t, len(none.without(pages, now)) == 2, "a compensator beside a pipeline leaves out orders")
}
