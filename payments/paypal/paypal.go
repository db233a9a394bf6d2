// Package paypal reads PayPal orders (orders v2), and says when their payments have ended.
//
// PayPal cannot cancel such an order: it expires by itself, after hours. But the money of an order with the intent
// CAPTURE moves only when the shop captures it. So an order that the shop captures no more has ended. Only
// the shop can promise that: Options.ShopCapturesBeforeDue. Use New as an API of payments.New. The answers are:
//
//	order                                        Cancel                  Ask
//	CREATED, PAYER_ACTION_REQUIRED               Cancelled (promise)     Unpaid
//	APPROVED                                     Cancelled (promise)     Unpaid (promise)
//	VOIDED                                       Cancelled               Unpaid
//	a capture is COMPLETED, PARTIALLY_REFUNDED   Paid                    Paid
//	a capture is PENDING                         Unknown                 Unknown
//	COMPLETED, and all captures are DECLINED,    Cancelled               Unpaid
//	FAILED or REFUNDED
//	all others, also with the intent AUTHORIZE   Unknown                 Unknown
//
// Answers that are marked with promise are Unknown without it.
package paypal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/plutov/paypal/v4"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

// tokenMargin is how long before its end a token is replaced. The client itself does so a minute before.
const tokenMargin = 2 * time.Minute

// Options configure an API. ClientID and Secret are required.
type Options struct {
	ClientID string
	Secret   string
	Sandbox  bool // use PayPal's test environment
	// ShopCapturesBeforeDue is a promise: only the shop's server captures orders, and it begins no capture later than
	// a minute before the due time of its order. Neither the customer's browser captures, nor PayPal itself
	// (processing_instruction ORDER_COMPLETE_ON_PAYMENT_APPROVAL).
	ShopCapturesBeforeDue bool
	Transport             http.RoundTripper // default: http.DefaultTransport
}

// API is a payments.API. Create it with New.
type API struct {
	o      Options
	lock   chan struct{}  // holds one element while a goroutine uses the fields below: a lock for which a context can end the wait
	client *paypal.Client // has a token; nil: there is none
	until  time.Time      // when the token of the client is replaced
}

// New returns an API, or an error if the options are invalid.
func New(o Options) (*API, error) {
	if o.ClientID == "" || o.Secret == "" {
		return nil, errors.New("paypal: Options need ClientID and Secret")
	}
	return &API{o: o, lock: make(chan struct{}, 1)}, nil
}

// Name implements payments.API.
func (*API) Name() string { return "paypal" }

var orderID = regexp.MustCompile(`^[A-Z0-9]{10,36}$`)

// Owns implements payments.API: the references are ids of PayPal orders, such as 5O190127TN364715T.
func (*API) Owns(reference string) bool { return orderID.MatchString(reference) }

// Ask implements payments.API.
func (a *API) Ask(ctx context.Context, reference string) (payment.Answer, error) {
	order, err := a.read(ctx, reference)
	if err != nil {
		return payment.Unknown, err
	}
	answer := answer(order, true, a.o.ShopCapturesBeforeDue)
	if answer == payment.Cancelled {
		answer = payment.Unpaid
	}
	return answer, nil
}

// Cancel implements payments.API. It changes nothing at PayPal.
func (a *API) Cancel(ctx context.Context, reference string) (payment.Answer, error) {
	order, err := a.read(ctx, reference)
	if err != nil {
		return payment.Unknown, err
	}
	return answer(order, a.o.ShopCapturesBeforeDue, a.o.ShopCapturesBeforeDue), nil
}

// answer returns Paid or Cancelled for an order whose payment has ended, and otherwise Unknown. openEnded
// and approvedEnded say whether an order that was not captured has ended, before and after the customer approved it.
func answer(o *paypal.Order, openEnded, approvedEnded bool) payment.Answer {
	paid, pending, failed := 0, 0, 0
	for _, unit := range o.PurchaseUnits {
		if unit.Payments == nil {
			continue
		}
		for _, capture := range unit.Payments.Captures {
			switch capture.Status {
			case "COMPLETED", "PARTIALLY_REFUNDED":
				paid++
			case "REFUNDED", "DECLINED", "FAILED":
				failed++
			default:
				pending++
			}
		}
	}
	switch {
	case paid > 0:
		return payment.Paid
	case pending > 0 || o.Intent != paypal.OrderIntentCapture:
		return payment.Unknown
	case o.Status == paypal.OrderStatusVoided,
		o.Status == paypal.OrderStatusCompleted && failed > 0,
		openEnded && (o.Status == paypal.OrderStatusCreated || o.Status == "PAYER_ACTION_REQUIRED"),
		approvedEnded && o.Status == paypal.OrderStatusApproved:
		return payment.Cancelled
	}
	return payment.Unknown
}

func (a *API) read(ctx context.Context, id string) (*paypal.Order, error) {
	client, err := a.withToken(ctx)
	if err != nil {
		return nil, failure(err)
	}
	order, err := client.GetOrder(ctx, id)
	var e *paypal.ErrorResponse
	if errors.As(err, &e) && e.Response.StatusCode == http.StatusUnauthorized {
		a.lock <- struct{}{}
		a.client = nil // the next call gets another token
		<-a.lock
	}
	if err != nil {
		return nil, failure(err)
	}
	return order, nil
}

// withToken returns a client with a token that is valid for a while. Each token has a client of its own, because
// the client would keep its lock for ever if a response had no token.
func (a *API) withToken(ctx context.Context) (*paypal.Client, error) {
	select {
	case a.lock <- struct{}{}:
		defer func() { <-a.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.client != nil && time.Now().Before(a.until) {
		return a.client, nil
	}
	base := paypal.APIBaseLive
	if a.o.Sandbox {
		base = paypal.APIBaseSandBox
	}
	client, err := paypal.NewClient(a.o.ClientID, a.o.Secret, base)
	if err != nil {
		return nil, err
	}
	client.SetHTTPClient(signed.Client(a.o.Transport))
	token, err := client.GetAccessToken(ctx)
	if err == nil && token.Token == "" {
		err = errors.New("the response has no token")
	}
	if err != nil {
		return nil, err
	}
	a.client, a.until = client, time.Now().Add(token.ExpiresIn.ToDuration()-tokenMargin)
	return client, nil
}

// failure returns the error to report: *payments.Unavailable if the payment is not at fault.
func failure(err error) error {
	var e *paypal.ErrorResponse
	if !errors.As(err, &e) { // no response, or not from PayPal
		return &payments.Unavailable{Err: err}
	}
	status := e.Response.StatusCode
	said := fmt.Errorf("answered %d: %s %s (debug id %s)", status, e.Name, e.Message, e.DebugID)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &payments.Unavailable{Err: fmt.Errorf("%w: are client id and secret right, and of this environment (live or sandbox)?", said)}
	case status == http.StatusTooManyRequests, status >= 500:
		return payments.RetryLater(e.Response.Header, said)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: it has expired, or it is of another account or environment (live or sandbox)", said)
	}
	return said
}
