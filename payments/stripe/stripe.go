// Package stripe cancels payments at Stripe: checkout sessions (cs_…) and payment intents (pi_…).
//
// Use New as an API of payments.New. A checkout session is expired, and a payment intent is cancelled. If Stripe
// refuses that, the object is read, and its status decides:
//
//	session    intent                                  Cancel             Ask
//	open       none                                    is expired         Unpaid
//	open       requires_payment_method, _confirmation  is expired         Unpaid
//	open       requires_action                         is expired         Unknown
//	expired    none, requires_payment_method           Cancelled          Unpaid
//	complete   requires_payment_method                 Cancelled          Unpaid
//	none       requires_payment_method, _confirmation  is cancelled       Unpaid
//	none       requires_action                         is cancelled       Unknown
//	any        requires_capture                        is cancelled       Unknown
//	any        canceled                                Cancelled          Unpaid
//	any        succeeded                               Paid               Paid
//	any        processing, and all other states        Unknown            Unknown
//
// With Options.AuthorizedIsPaid, requires_capture is Paid.
// A payment that was refunded in full has ended. An expired session that the customer may recover
// (after_expiration.recovery) is Unknown until its link expires. A session without an intent is Paid if its
// payment_status is paid, or if a session in payment mode needs no payment.
//
// Cancel changes first and reads later: an open session is one call, and there is no moment between
// reading and changing in which the customer pays unnoticed. Each POST has an idempotency key of its own, for the one
// retry of the client. With the key of an earlier Cancel, Stripe would repeat its old answer for a day, also an error.
package stripe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

// Options configure an API. Key is required.
type Options struct {
	// Key is a secret key, or a restricted key with write access to checkout sessions and payment intents,
	// and read access to charges.
	Key     string
	Account string // acct_…, of a connected account; default: the account of the key
	// AuthorizedIsPaid says what an authorisation is that the shop has not captured yet (requires_capture).
	// If true, the order is Paid. If false, Cancel releases the authorisation.
	AuthorizedIsPaid bool
	URL              string            // default: Stripe's API; another one in tests
	Transport        http.RoundTripper // default: http.DefaultTransport
}

// API is a payments.API. Create it with New.
type API struct {
	o      Options
	client *stripego.Client
}

// New returns an API, or an error if there is no key.
func New(o Options) (*API, error) {
	if o.Key == "" {
		return nil, errors.New("stripe: Options need a Key")
	}
	config := &stripego.BackendConfig{
		HTTPClient:        signed.Client(o.Transport),
		MaxNetworkRetries: stripego.Int64(1), // after half a second; the closer repeats the rest
		EnableTelemetry:   stripego.Bool(false),
		LeveledLogger:     &stripego.LeveledLogger{Level: stripego.LevelNull},
	}
	if o.URL != "" {
		config.URL = &o.URL
	}
	return &API{o, stripego.NewClient(o.Key, stripego.WithBackends(stripego.NewBackendsWithConfig(config)))}, nil
}

// Name implements payments.API.
func (*API) Name() string { return "stripe" }

// Owns implements payments.API: checkout sessions begin with cs_, payment intents with pi_.
func (*API) Owns(reference string) bool {
	return strings.HasPrefix(reference, "cs_") || isIntent(reference)
}

func isIntent(reference string) bool { return strings.HasPrefix(reference, "pi_") }

// Ask implements payments.API.
func (a *API) Ask(ctx context.Context, reference string) (payment.Answer, error) {
	if isIntent(reference) {
		intent, err := a.readIntent(ctx, reference)
		if err != nil {
			return payment.Unknown, failure(err)
		}
		return asked(a.intent(intent), notStarted(intent)), nil
	}
	session, err := a.readSession(ctx, reference)
	if err != nil {
		return payment.Unknown, failure(err)
	}
	return asked(a.session(session), session.Status == stripego.CheckoutSessionStatusOpen && notStarted(session.PaymentIntent)), nil
}

// asked returns the answer to Ask. idle says that the payment is open and the customer has not begun to pay.
func asked(answer payment.Answer, idle bool) payment.Answer {
	if answer == payment.Cancelled || answer == payment.Unknown && idle {
		return payment.Unpaid
	}
	return answer
}

// Cancel implements payments.API.
func (a *API) Cancel(ctx context.Context, reference string) (payment.Answer, error) {
	if isIntent(reference) {
		return a.cancelIntent(ctx, reference)
	}
	session, err := a.client.V1CheckoutSessions.Expire(ctx, reference, &stripego.CheckoutSessionExpireParams{
		Params: a.params(), Expand: expanded("payment_intent.latest_charge"),
	})
	refusal := refused(err)
	if refusal != nil { // it has expired, or it is complete
		session, err = a.readSession(ctx, reference)
	}
	if err != nil {
		return payment.Unknown, failure(err)
	}
	answer := a.session(session)
	switch intent := session.PaymentIntent; {
	case answer == payment.Unknown && intent != nil && intent.Status == stripego.PaymentIntentStatusRequiresCapture:
		return a.cancelIntent(ctx, intent.ID) // which Stripe allows for a session in this status only
	case session.Status == stripego.CheckoutSessionStatusOpen && refusal != nil:
		return payment.Unknown, fmt.Errorf("the session is open and cannot be expired: %s", refusal.Msg)
	}
	return answer, nil
}

func (a *API) cancelIntent(ctx context.Context, id string) (payment.Answer, error) {
	if a.o.AuthorizedIsPaid { // a cancel would release the authorisation
		if intent, err := a.readIntent(ctx, id); err != nil {
			return payment.Unknown, failure(err)
		} else if answer := a.intent(intent); answer != payment.Unknown {
			return answer, nil
		}
	}
	intent, err := a.client.V1PaymentIntents.Cancel(ctx, id, &stripego.PaymentIntentCancelParams{
		Params: a.params(), CancellationReason: stripego.String("abandoned"), Expand: expanded("latest_charge"),
	})
	refusal := refused(err)
	if refusal != nil {
		intent, err = a.readIntent(ctx, id)
	}
	if err != nil {
		return payment.Unknown, failure(err)
	}
	answer := a.intent(intent)
	if answer == payment.Unknown && refusal != nil && notStarted(intent) {
		return answer, fmt.Errorf("the intent cannot be cancelled: %s; if it belongs to a checkout session, let the reference be the id of the session", refusal.Msg)
	}
	return answer, nil
}

// session returns Paid or Cancelled for a session that has ended, and otherwise Unknown.
func (a *API) session(s *stripego.CheckoutSession) payment.Answer {
	if s.PaymentIntent == nil {
		switch {
		case s.PaymentStatus == stripego.CheckoutSessionPaymentStatusPaid,
			s.Status == stripego.CheckoutSessionStatusComplete && s.Mode == stripego.CheckoutSessionModePayment &&
				s.PaymentStatus == stripego.CheckoutSessionPaymentStatusNoPaymentRequired:
			return payment.Paid
		case s.Status == stripego.CheckoutSessionStatusExpired && !recoverable(s):
			return payment.Cancelled
		}
		return payment.Unknown
	}
	answer := a.intent(s.PaymentIntent)
	switch {
	case answer == payment.Paid:
		return answer
	case s.Status == stripego.CheckoutSessionStatusOpen, recoverable(s):
		return payment.Unknown
	case s.PaymentIntent.Status == stripego.PaymentIntentStatusRequiresPaymentMethod:
		return payment.Cancelled // the payment failed, and the page accepts no other
	}
	return answer
}

// recoverable reports whether the customer can open a copy of an expired session.
func recoverable(s *stripego.CheckoutSession) bool {
	if s.Status != stripego.CheckoutSessionStatusExpired || s.AfterExpiration == nil || s.AfterExpiration.Recovery == nil {
		return false
	}
	r := s.AfterExpiration.Recovery
	return r.Enabled && (r.ExpiresAt == 0 || payments.TimeOf(s.LastResponse.Header).Before(time.Unix(r.ExpiresAt, 0))) // Stripe's clock decides
}

// intent returns Paid or Cancelled for an intent that has ended, and otherwise Unknown.
func (a *API) intent(i *stripego.PaymentIntent) payment.Answer {
	switch i.Status {
	case stripego.PaymentIntentStatusSucceeded:
		if i.LatestCharge != nil && i.LatestCharge.Refunded {
			return payment.Cancelled
		}
		return payment.Paid
	case stripego.PaymentIntentStatusCanceled:
		return payment.Cancelled
	case stripego.PaymentIntentStatusRequiresCapture:
		if a.o.AuthorizedIsPaid {
			return payment.Paid
		}
	}
	return payment.Unknown
}

// notStarted reports whether the customer has not begun to pay, or has failed.
func notStarted(i *stripego.PaymentIntent) bool {
	return i == nil || i.Status == stripego.PaymentIntentStatusRequiresPaymentMethod || i.Status == stripego.PaymentIntentStatusRequiresConfirmation
}

func (a *API) readSession(ctx context.Context, id string) (*stripego.CheckoutSession, error) {
	return a.client.V1CheckoutSessions.Retrieve(ctx, id, &stripego.CheckoutSessionRetrieveParams{
		Params: a.params(), Expand: expanded("payment_intent.latest_charge"),
	})
}

func (a *API) readIntent(ctx context.Context, id string) (*stripego.PaymentIntent, error) {
	return a.client.V1PaymentIntents.Retrieve(ctx, id, &stripego.PaymentIntentRetrieveParams{
		Params: a.params(), Expand: expanded("latest_charge"),
	})
}

func (a *API) params() (p stripego.Params) {
	if a.o.Account != "" {
		p.SetStripeAccount(a.o.Account)
	}
	return p
}

func expanded(field string) []*string { return []*string{&field} }

// refused returns the error with which Stripe refuses a change because of the object's status, and otherwise nil.
func refused(err error) *stripego.Error {
	var e *stripego.Error
	if errors.As(err, &e) && e.HTTPStatusCode == http.StatusBadRequest {
		return e
	}
	return nil
}

// failure returns the error to report: *payments.Unavailable if the payment is not at fault.
func failure(err error) error {
	var e *stripego.Error
	if !errors.As(err, &e) { // no response, or not from Stripe
		return &payments.Unavailable{Err: err}
	}
	said := fmt.Errorf("answered %d: %s (request %s)", e.HTTPStatusCode, e.Msg, e.RequestID)
	switch status := e.HTTPStatusCode; {
	case status == http.StatusUnauthorized:
		return &payments.Unavailable{Err: fmt.Errorf("%w: the key is wrong or was revoked; set another and start again", said)}
	case status == http.StatusForbidden:
		return &payments.Unavailable{Err: fmt.Errorf("%w: let the restricted key write checkout sessions and payment intents and read charges", said)}
	case status == http.StatusTooManyRequests && e.Code != stripego.ErrorCodeLockTimeout, status >= 500:
		return payments.RetryLater(e.LastResponse.Header, said)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: is it of this account, and do test and live mode match?", said)
	}
	return said
}
