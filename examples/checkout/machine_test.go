package checkout_test

import (
	"testing"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// TestNext_EveryPair repeats the whole table.
func TestNext_EveryPair(t *testing.T) {
	events := []checkout.Event{checkout.Pay, checkout.Cancel, checkout.Ship, checkout.Confirm, checkout.Close}
	for state, want := range map[checkout.State][5]checkout.State{
		//                  pay            cancel              ship              confirm             close
		checkout.Unpaid:    {checkout.Paid, checkout.Cancelled, "", "", checkout.Closed},
		checkout.Paid:      {"", "", checkout.Shipped, "", ""},
		checkout.Shipped:   {"", "", "", checkout.Confirmed, ""},
		checkout.Confirmed: {},
		checkout.Closed:    {},
		checkout.Cancelled: {},
		checkout.Closing:   {},
	} {
		for i, e := range events {
			next, ok := checkout.Next(state, e)
			expect.That(t, next == want[i] && ok == (want[i] != ""), "%s of %s: %q, %v; want %q", e, state, next, ok, want[i])
		}
	}
}
