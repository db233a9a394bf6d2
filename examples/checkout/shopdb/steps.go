package shopdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
)

// Answer is the result of Pay, Cancel, Ship or Confirm for an order.
type Answer string

// Answers of a call that changed the order's status.
const (
	AnswerPaid      Answer = "paid"      // unpaid before
	AnswerCancelled Answer = "cancelled" // unpaid before
	AnswerShipped   Answer = "shipped"   // paid before
	AnswerConfirmed Answer = "confirmed" // shipped before
)

// PaidLate is the answer to a payment that came too late or twice: the order was closed or cancelled before, or
// another payment paid it. The payment is on record in late_payments, once, however often it is repeated.
const PaidLate Answer = "paid_late"

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

// Pay marks an order paid unless it is closed, cancelled or paid. It also does so past the
// due time: the payment provider decides until the order is closed. payment is the
// provider's id of the payment. If the payment comes too late, or another payment paid the
// order, its money must go back: it is recorded once, however often the provider
// calls. The error wraps ErrBadPayment or an error of Checkout.
func (o *Orders) Pay(ctx context.Context, id, payment string) (Answer, error) {
	return o.step(ctx, func(t *Tx) (Answer, error) { return t.Pay(id, payment) })
}

// Cancel marks an order cancelled unless it is paid, closed or cancelled, and releases its
// stock in the same transaction.
func (o *Orders) Cancel(ctx context.Context, id string) (Answer, error) {
	return o.step(ctx, func(t *Tx) (Answer, error) { return t.Cancel(id) })
}

// Ship marks a paid order shipped, and removes its stock from the reserved quantity in the
// same transaction.
func (o *Orders) Ship(ctx context.Context, id string) (Answer, error) {
	return o.step(ctx, func(t *Tx) (Answer, error) { return t.Ship(id) })
}

// Confirm marks a shipped order confirmed: the customer has received it.
func (o *Orders) Confirm(ctx context.Context, id string) (Answer, error) {
	return o.step(ctx, func(t *Tx) (Answer, error) { return t.Confirm(id) })
}

// step runs one step in a transaction of its own. It returns no answer of a transaction that
// was not committed.
func (o *Orders) step(ctx context.Context, do func(*Tx) (Answer, error)) (a Answer, err error) {
	if err := o.Checkout(ctx, func(t *Tx) (err error) {
		a, err = do(t)
		return err
	}); err != nil {
		return "", err
	}
	return a, nil
}

// Pay is Orders.Pay within this transaction.
func (t *Tx) Pay(id, payment string) (Answer, error) {
	if orderclose.ValidateID(payment) != nil {
		return "", fmt.Errorf("pay order %q by payment %.80q: %w", id, payment, ErrBadPayment)
	}
	a, err := t.pay(id, payment)
	if err != nil {
		return "", fmt.Errorf("pay order %q by payment %q: %w", id, payment, err)
	}
	return a, nil
}

// answerOf are the answers for the results of Options.Record.
var answerOf = map[sqlclose.Recorded]Answer{sqlclose.Paid: AnswerPaid, sqlclose.AlreadyPaid: AlreadyPaid, sqlclose.PaidLate: PaidLate}

func (t *Tx) pay(id, payment string) (Answer, error) {
	result, err := t.o.Record(t.ctx, orderclose.SQL(t.SQL()), sqlclose.Payment{OrderID: id, ID: payment})
	if errors.Is(err, sqlclose.ErrNoOrder) {
		return NotFound, nil
	}
	return answerOf[result], err
}

// Cancel is Orders.Cancel within this transaction.
func (t *Tx) Cancel(id string) (Answer, error) {
	return t.changeStatus("cancel", id, Unpaid, Cancelled, AnswerCancelled, kindCancel)
}

// Ship is Orders.Ship within this transaction.
func (t *Tx) Ship(id string) (Answer, error) {
	return t.changeStatus("ship", id, Paid, Shipped, AnswerShipped, kindShip)
}

// Confirm is Orders.Confirm within this transaction.
func (t *Tx) Confirm(id string) (Answer, error) {
	return t.changeStatus("confirm", id, Shipped, Confirmed, AnswerConfirmed, "")
}

// changeStatus changes an order's status from one value to the next, and releases its stock
// for the reason kind, unless kind is "".
func (t *Tx) changeStatus(what, id string, from, to Status, done Answer, kind string) (Answer, error) {
	won, err := t.compareAndSet(id, from, to, "")
	answer := done
	switch {
	case err == nil && !won:
		answer, err = t.refusal(id, from)
	case err == nil && kind != "":
		err = t.releaseStock(id, kind)
	}
	if err != nil {
		return "", fmt.Errorf("%s order %q: %w", what, id, err)
	}
	return answer, nil
}

// compareAndSet changes the status of an order, and the columns in set, if it has the status
// from. It reports whether it changed the row.
func (t *Tx) compareAndSet(id string, from, to Status, set string, args ...any) (bool, error) {
	if orderclose.ValidateID(id) != nil {
		return false, nil
	}
	args = append(append([]any{to}, args...), id, from)
	// The plus keeps SQLite from using the index on status; other databases ignore it.
	n, err := t.exec("UPDATE orders SET status = ?, version = version + 1"+set+" WHERE id = ? AND +status = ?", args...)
	return n == 1, err
}

// status returns the status of an order.
func (t *Tx) status(id string) (st Status, err error) {
	if orderclose.ValidateID(id) != nil {
		return 0, ErrNoOrder
	}
	err = t.run.QueryRowContext(t.ctx, "SELECT status FROM orders WHERE id = ?", id).Scan(&st)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoOrder
	}
	return st, err
}

// refusal returns the reason why an order could not leave a status.
func (t *Tx) refusal(id string, from Status) (Answer, error) {
	st, err := t.status(id)
	switch {
	case errors.Is(err, ErrNoOrder):
		return NotFound, nil
	case err != nil:
		return "", err
	case st == from:
		// The order reached this status after the UPDATE, which did not find it.
		return "", fmt.Errorf("%w: the order has just become %v", orderclose.ErrContended, st)
	case st == Closed:
		return AlreadyClosed, nil
	case st == Cancelled:
		return AlreadyCancelled, nil
	case from == Paid && st == Unpaid:
		return NotPaid, nil
	case from == Paid:
		return AlreadyShipped, nil
	case from == Shipped && st == Confirmed:
		return AlreadyConfirmed, nil
	case from == Shipped:
		return NotShipped, nil
	default:
		return AlreadyPaid, nil
	}
}
