package store

import "errors"

// Answer is the result of Pay, Cancel, Ship or Confirm for an order.
type Answer string

// Answers of a call that changed the order's status.
const (
	AnswerPaid      Answer = "paid"      // unpaid before
	AnswerCancelled Answer = "cancelled" // unpaid before
	AnswerShipped   Answer = "shipped"   // paid before
	NowConfirmed    Answer = "confirmed" // shipped before
)

// Answers to a payment that came too late or twice. The call wrote a refund intent. A repeat
// of the same payment writes none.
const (
	PaidAfterClose  Answer = "paid_after_close"  // the order was closed before
	PaidAfterCancel Answer = "paid_after_cancel" // the order was cancelled before
	PaidTwice       Answer = "paid_twice"        // another payment paid the order
	RefundNoted     Answer = "refund_noted"      // this payment has a refund intent already
)

// Answers of a call that changed nothing.
const (
	AlreadyPaid      Answer = "already_paid"      // paid before (for Pay: by this payment), and perhaps shipped
	AlreadyClosed    Answer = "already_closed"    // closed before
	AlreadyCancelled Answer = "already_cancelled" // cancelled before
	AlreadyShipped   Answer = "already_shipped"   // shipped before, and perhaps confirmed
	AlreadyConfirmed Answer = "already_confirmed" // confirmed before
	NotPaid          Answer = "not_paid"          // unpaid: only a paid order can be shipped
	NotShipped       Answer = "not_shipped"       // not shipped: only a shipped order can be confirmed
	NotFound         Answer = "not_found"         // the order does not exist
)

// Errors of a checkout. Compare with errors.Is.
var (
	// ErrOutOfStock: fewer pieces of a SKU are available than the order needs.
	ErrOutOfStock = errors.New("out of stock")
	// ErrDuplicateOrder: an order with this id exists.
	ErrDuplicateOrder = errors.New("the order exists already")
	// ErrBadItem: a line has no SKU, or a quantity below one.
	ErrBadItem = errors.New("a line needs a SKU and a quantity of at least one")
	// ErrBadPayment: the id of a payment is not valid.
	ErrBadPayment = errors.New("a payment needs an id of at most 64 bytes")
)

// refusal returns the answer for an order of status st that a call cannot move on from status from.
func refusal(st, from Status) Answer {
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
