// Package payment has the payment provider asked before an unpaid order is
// closed: the customer may have paid, and the shop not have heard of it.
//
// Asking stands in front of a store that closes (asking.go). Of what it is asked
// to close it looks up what is unpaid and due, asks the Provider for those, marks
// paid what is paid, lets the store close what is not, and leaves the rest
// PaymentPending: nobody knows, so nothing is changed. HTTP is a Provider that
// asks a service of the shop's (http.go), Handler its other side in Go.
package payment

import "context"

// Answer is what a payment provider says of an order.
type Answer string

// The answers. Anything else counts as Unknown.
const (
	Paid    Answer = "paid"    // it was paid; the shop may not know yet
	Unpaid  Answer = "unpaid"  // it was not, and no payment is under way
	Unknown Answer = "unknown" // it cannot say yet
)

// Provider knows which orders were paid. Ask answers for each id, in their order;
// an error counts as Unknown for all of them. It returns soon after ctx has ended.
type Provider interface {
	Ask(ctx context.Context, orderIDs []string) ([]Answer, error)
}

// ProviderFunc is a function that is a Provider.
type ProviderFunc func(ctx context.Context, orderIDs []string) ([]Answer, error)

// Ask calls f.
func (f ProviderFunc) Ask(ctx context.Context, orderIDs []string) ([]Answer, error) {
	return f(ctx, orderIDs)
}
