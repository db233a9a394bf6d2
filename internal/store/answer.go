package store

import "errors"

// Answer is what Pay, Cancel, Ship and Confirm say of an order.
type Answer string

// What a call has done.
const (
	NowPaid      Answer = "paid"      // it was unpaid and is paid now
	NowCancelled Answer = "cancelled" // it was unpaid and is cancelled now
	NowShipped   Answer = "shipped"   // it was paid and is shipped now
	NowConfirmed Answer = "confirmed" // it was shipped and is confirmed now
)

// What a payment has done that was not wanted any more: it left a refund intent.
// A repeat of the same payment leaves none.
const (
	PaidAfterClose  Answer = "paid_after_close"  // the order was closed first
	PaidAfterCancel Answer = "paid_after_cancel" // the order was cancelled first
	PaidTwice       Answer = "paid_twice"        // another payment has paid the order
	RefundNoted     Answer = "refund_noted"      // there is a refund intent of this payment
)

// Why a call has done nothing.
const (
	AlreadyPaid      Answer = "already_paid"      // it was paid before, by this payment if it is one, and may be on its way
	AlreadyClosed    Answer = "already_closed"    // it was closed first
	AlreadyCancelled Answer = "already_cancelled" // it was cancelled first
	AlreadyShipped   Answer = "already_shipped"   // it was shipped before, or confirmed as well
	AlreadyConfirmed Answer = "already_confirmed" // it was confirmed before
	NotPaid          Answer = "not_paid"          // it is unpaid, and only a paid one can be shipped
	NotShipped       Answer = "not_shipped"       // it is not shipped, so that nobody can have got it
	NotFound         Answer = "not_found"         // there is no such order
)

// What can be wrong with an order at checkout. Compare with errors.Is.
var (
	// ErrOutOfStock: there is less of a SKU than the order wants, or none.
	ErrOutOfStock = errors.New("out of stock")
	// ErrDuplicateOrder: an order of that id exists.
	ErrDuplicateOrder = errors.New("the order exists already")
	// ErrBadItem: a line without SKU, or with a quantity below one.
	ErrBadItem = errors.New("a line needs a SKU and a quantity of at least one")
	// ErrBadPayment: a payment whose id is none.
	ErrBadPayment = errors.New("a payment needs an id of at most 64 bytes")
)

// whyNot says what keeps an order of a status from leaving another one.
func whyNot(st, from Status) Answer {
	switch {
	case st == Closed:
		return AlreadyClosed
	case st == Cancelled:
		return AlreadyCancelled
	case from == Paid && st == Unpaid:
		return NotPaid
	case from == Paid:
		return AlreadyShipped
	case from == Shipped && st == Confirmed:
		return AlreadyConfirmed
	case from == Shipped:
		return NotShipped
	default:
		return AlreadyPaid
	}
}
