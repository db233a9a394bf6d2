package checkout

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// StartedPayment is a payment that the customer may now make with the provider.
type StartedPayment struct {
	PaymentID string    `json:"payment_id"`
	OrderID   string    `json:"order_id"`
	PayBefore time.Time `json:"pay_before,omitzero"` // zero: any time
}

// StartPayment starts a payment of an order that can be paid. An order past due is closed
// instead: no payment may start after the due time, or one could succeed after the close, although the
// closer has cancelled all payments that it knew of. The first check is in the transaction that records
// the payment. A closer that looks before the commit does not see the payment, so the second check begins
// after the commit. It also holds for a repeat of the request. The errors are those of Do. The record of a
// payment that the second check refuses stays: its page may be cancelled, and its callback is accepted.
func (s *Shop) StartPayment(ctx context.Context, r Request, id string) (Reply, error) {
	reply, err := s.apply(ctx, r, id, Pay, func(t *shopdb.Tx, v shopdb.View) (int, any, error) {
		p := StartedPayment{PaymentID: "p-" + newID(), OrderID: id, PayBefore: show(v, v.At).DueAt}
		_, err := t.SQL().ExecContext(ctx, "INSERT INTO checkout_payments (payment_id, order_id, started_at) VALUES (?, ?, ?)",
			p.PaymentID, id, v.At.UnixMilli())
		return http.StatusCreated, p, err
	})
	if err != nil {
		return reply, err
	}
	// A shop with a provider creates the payment page here, before the second check.
	_, err = s.apply(ctx, Request{}, id, Pay, func(*shopdb.Tx, shopdb.View) (int, any, error) { return http.StatusOK, nil, nil })
	return reply, err
}

// PaymentResult is the result of a payment.
type PaymentResult struct {
	PaymentID string `json:"payment_id"`
	// Outcome is "paid", or "refund" if the money must go back: the order was closed,
	// cancelled, or paid by another payment.
	Outcome string `json:"outcome"`
	Order   Order  `json:"order"`
}

// ErrNoPayment says that no payment with this id was started.
var ErrNoPayment = errors.New("the payment does not exist")

// HandleCallback handles the provider's callback that a payment was made. It accepts the payment
// in every state of the order, past due too: the payment pays the order, or its money goes back.
// The provider may call any number of times. A payment in time also plans the delivery. The error wraps ErrNoPayment if no such payment was
// started, shopdb.ErrNoOrder if its order was deleted, or orderclose.ErrUnavailable or
// orderclose.ErrContended: the provider must then call again.
func (s *Shop) HandleCallback(ctx context.Context, payment string) (PaymentResult, error) {
	var v shopdb.View
	var answer shopdb.Answer
	err := s.orders.Checkout(ctx, func(t *shopdb.Tx) error {
		var order string
		err := t.SQL().QueryRowContext(ctx, "SELECT order_id FROM checkout_payments WHERE payment_id = ?", payment).Scan(&order)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("payment %.80q: %w", payment, ErrNoPayment)
		}
		if err != nil {
			return err
		}
		if answer, err = t.Pay(order, payment); err != nil {
			return err
		}
		if answer == shopdb.AnswerPaid {
			if err := s.deliver(ctx, t.SQL(), order); err != nil {
				return err
			}
		}
		v, err = t.ViewOrder(order)
		return err
	})
	if err != nil {
		return PaymentResult{}, err
	}
	s.changed(ctx, v)
	result := PaymentResult{PaymentID: payment, Outcome: "refund", Order: show(v, v.At)}
	switch answer {
	case shopdb.AnswerPaid, shopdb.AlreadyPaid:
		result.Outcome = "paid"
	default:
		s.o.Logger.Warn("payment came too late, refund needed", "order", v.ID, "payment", payment, "status", v.Status)
	}
	return result, nil
}

// signed reports whether the provider signed the body: the signature is the hex of the body's
// HMAC-SHA256 with the shared secret.
func (s *Shop) signed(body []byte, signature string) bool {
	if s.o.CallbackSecret == "" {
		return true
	}
	mac := hmac.New(sha256.New, []byte(s.o.CallbackSecret))
	mac.Write(body)
	given, err := hex.DecodeString(signature)
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}
