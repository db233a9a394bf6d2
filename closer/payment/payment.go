// Package payment asks the payment provider before an unpaid order is closed: the
// customer may have paid without the shop knowing it yet.
//
// Put a CheckedStore in front of the store that closes orders (asking.go). It looks up
// which of the requested orders are unpaid and due, and asks the Provider about them (inquiry.go).
// It marks paid orders as paid, and lets the store close the unpaid orders. All other
// orders become PaymentPending and are not changed, because it is unknown whether they
// are paid. HTTP is a Provider that asks a service of the shop (http.go); Handler is the
// receiving side in Go. A Recheck asks again after the close (recheck.go).
//
// A payment may still succeed after the answer Unpaid: then the order is closed, and the money
// must go back. If the Provider is a Canceler, the payments of an order are cancelled instead,
// and the order is closed after that. Then no payment succeeds after the close, if the
// shop opens no payment for an order after its due time.
package payment

import "context"

// Answer is the provider's answer on an order.
type Answer string

// The answers. Any other value counts as Unknown.
const (
	Paid      Answer = "paid"      // the order was paid; the shop may not know it yet
	Unpaid    Answer = "unpaid"    // of Ask: the order was not paid, and no payment is in progress
	Cancelled Answer = "cancelled" // of Cancel: the order was not paid, and no payment of it can succeed any more
	Unknown   Answer = "unknown"   // the provider cannot tell yet
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

// Canceler is an optional interface of a Provider that can end payments: expire a checkout session,
// close a trade. A CheckedStore then calls Cancel instead of Ask, and closes an order only after the
// answer Cancelled.
type Canceler interface {
	Provider
	// Cancel ends the payments of orders that are unpaid, due and not paused, so that none can succeed any
	// more. It returns Cancelled, Paid or Unknown for each id; any other answer, also Unpaid,
	// counts as Unknown. Times and errors are those of Ask.
	//
	// Cancel is called again for an order whose close has failed, and must then answer Cancelled
	// again. An order of which the provider has no payment is Unknown until the payment page
	// would have expired by itself: the shop may have opened it just before the due time, and the
	// payment may reach the provider later. It is Cancelled at once if the shop's own data show that no
	// page was opened. The shop must open no payment for an order after its due time: it checks
	// that once more after the start of a payment is committed (docs/payments.md).
	Cancel(ctx context.Context, orderIDs []string) ([]Answer, error)
}

// ProviderFunc is a function that implements Provider.
type ProviderFunc func(ctx context.Context, orderIDs []string) ([]Answer, error)

// Ask calls f.
func (f ProviderFunc) Ask(ctx context.Context, orderIDs []string) ([]Answer, error) {
	return f(ctx, orderIDs)
}
