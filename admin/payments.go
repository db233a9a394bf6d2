package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/store"
)

// ErrResolved says that somebody has said before what became of a late payment, which the call returns too.
var ErrResolved = store.ErrResolvedBefore

// LatePayment is money that came after its order was closed or cancelled, or twice for one order.
type LatePayment struct {
	ID        int64      `json:"id"` // for LatePayment and ResolveLate
	OrderID   string     `json:"order_id"`
	PaymentID string     `json:"payment_id,omitempty"` // the provider's id; "": unknown, because the provider was asked about the order
	Amount    int64      `json:"amount,omitempty"`     // in minor units of Currency, such as cents
	Currency  string     `json:"currency,omitempty"`   // ISO 4217; "": the amount is unknown
	RefundKey string     `json:"refund_key,omitempty"` // the idempotency key of its refund at the provider; "": PaymentID is unknown
	Source    LateSource `json:"source"`
	FoundAt   time.Time  `json:"found_at"` // by the database's clock
	// ResolvedAt is when an operator said what became of the money; zero: nobody has yet.
	ResolvedAt time.Time  `json:"resolved_at,omitzero"`
	Resolution Resolution `json:"resolution,omitempty"` // "": nobody has decided yet
	ResolvedBy string     `json:"resolved_by,omitempty"`
	// PerhapsSame has the IDs of the order's other late payments, also of resolved ones, that are perhaps the same money: one of the
	// two has no PaymentID. Look at the provider whether the customer has paid once or twice, and give money back once.
	PerhapsSame []int64 `json:"perhaps_same_as,omitempty"`
}

// LateSource is a text that says how a late payment was found: SourceCallback, SourceRecheck or SourceSameID.
type LateSource = store.LateSource

// The values of LateSource.
const (
	SourceCallback = store.SourceCallback // the provider called the shop
	SourceRecheck  = store.SourceRecheck  // the provider was asked again, after the order was closed
	SourceSameID   = store.SourceSameID   // a callback of money that a person may have decided about: ask the provider whether it went back
)

// Resolution is a text that says what became of the money of a late payment: Refunded or Reopened.
type Resolution = store.LateResolution

// The values of Resolution.
const (
	Refunded = store.Refunded // the customer has the money back
	Reopened = store.Reopened // the customer gets the goods
)

// LatePayments returns the late payments that nobody has resolved, the oldest first, or with all also the others, the newest first. It
// returns at most 1,000. The error wraps ErrNoDatabase.
func (a *Admin) LatePayments(ctx context.Context, all bool) ([]LatePayment, error) {
	found, err := a.p.LatePayments(ctx, all)
	payments := make([]LatePayment, len(found))
	for i, p := range found {
		payments[i] = LatePayment(p)
	}
	return payments, err
}

// LatePayment returns one late payment. The error wraps ErrNotFound or ErrNoDatabase.
func (a *Admin) LatePayment(ctx context.Context, id int64) (LatePayment, error) {
	if a.p.Store == nil {
		return LatePayment{}, ErrNoDatabase
	}
	p, err := a.p.Store.LatePayment(ctx, id)
	return LatePayment(p), failed(err)
}

// ResolveLate records what became of the money of a late payment, and that the operator said so. It moves no money and changes no order:
// do that first. It cannot be taken back. The error wraps ErrResolved, ErrNotFound or ErrNoDatabase.
func (a *Admin) ResolveLate(ctx context.Context, id int64, how Resolution) (LatePayment, error) {
	switch {
	case how != Refunded && how != Reopened:
		return LatePayment{}, fmt.Errorf("resolution is %q, want %s or %s", how, Refunded, Reopened)
	case a.p.Store == nil:
		return LatePayment{}, ErrNoDatabase
	}
	p, err := a.p.Store.ResolveLate(ctx, id, how, a.operator)
	return LatePayment(p), a.acted(ctx, err == nil, err, "ResolveLate", id, how)
}
