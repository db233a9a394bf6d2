// Package payment asks the payment provider before an unpaid order is closed: the
// customer may have paid without the shop knowing it yet.
//
// Put a CheckedStore in front of the store that closes orders (asking.go). It looks up
// which of the requested orders are unpaid and due, and asks the Provider about them (batch.go).
// It marks paid orders as paid, and lets the store close the unpaid orders. All other
// orders become PaymentPending and are not changed, because it is unknown whether they
// are paid. HTTP is a Provider that asks a service of the shop (http.go); Handler is the
// receiving side in Go.
package payment

import "context"

// Answer is the provider's answer on an order.
type Answer string

// The answers. Any other value counts as Unknown.
const (
	Paid    Answer = "paid"    // the order was paid; the shop may not know it yet
	Unpaid  Answer = "unpaid"  // the order was not paid, and no payment is in progress
	Unknown Answer = "unknown" // the provider cannot tell yet
)

// Provider knows which orders were paid.
type Provider interface {
	// Ask returns one answer for each id, in the order of the ids. It is called from
	// several goroutines. ctx ends after 3 s at the latest; Ask must return soon after.
	//
	// After an error no order of the question is closed. Several orders are asked for
	// again in smaller questions, because one of them may be at fault. An error that wraps
	// orderclose.ErrUnavailable, and a call that takes too long, mean that the provider
	// does not work now. After five of them in a row the provider is not asked for 5 s.
	Ask(ctx context.Context, orderIDs []string) ([]Answer, error)
}

// ProviderFunc is a function that implements Provider.
type ProviderFunc func(ctx context.Context, orderIDs []string) ([]Answer, error)

// Ask calls f.
func (f ProviderFunc) Ask(ctx context.Context, orderIDs []string) ([]Answer, error) {
	return f(ctx, orderIDs)
}
