package stripe_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/payments/internal/apitest"
	"github.com/orderclose/orderclose/payments/stripe"
)

const key = "rk_test_x"

type object = map[string]any

// standIn behaves as Stripe's public API does for checkout sessions and payment intents: the states, which
// changes are refused in which state, and the form of errors.
type standIn struct {
	t      *testing.T
	server *httptest.Server
	// before is called before each request is answered; if it returns true, it has answered.
	before func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	sessions map[string]object
	intents  map[string]object
	requests []string
	keys     []string // idempotency keys
}

func start(t *testing.T) *standIn {
	s := &standIn{t: t, sessions: map[string]object{}, intents: map[string]object{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *standIn) api(o stripe.Options) *stripe.API {
	s.t.Helper()
	o.URL, o.Transport = s.server.URL, s.server.Client().Transport
	if o.Key == "" {
		o.Key = key
	}
	return must.Get(stripe.New(o))(s.t)
}

// intent adds a payment intent.
func (s *standIn) intent(id, status string) {
	s.intents[id] = object{"id": id, "object": "payment_intent", "status": status, "latest_charge": object{"id": "ch_1", "object": "charge", "refunded": false}}
}

// session adds a checkout session, with an intent unless its status is empty.
func (s *standIn) session(id, status, paymentStatus, intent string) {
	s.sessions[id] = object{"id": id, "object": "checkout.session", "mode": "payment", "status": status, "payment_status": paymentStatus}
	if intent != "" {
		s.intent("pi_of_"+id, intent)
	}
}

func refuse(w http.ResponseWriter, status int, kind, code, message string) {
	w.Header().Set("Request-Id", "req_1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"error": object{"type": kind, "code": code, "message": message}})
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	if r.Method == http.MethodPost {
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	}
	if s.before != nil && s.before(w, r) {
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+key {
		refuse(w, http.StatusUnauthorized, "invalid_request_error", "", "Invalid API Key provided: rk_test_***")
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	if parts[0] == "checkout" {
		s.serveSession(w, parts[2], len(parts) > 3)
		return
	}
	s.serveIntent(w, parts[1], len(parts) > 2)
}

func (s *standIn) serveSession(w http.ResponseWriter, id string, expire bool) {
	session, intent := s.sessions[id], s.intents["pi_of_"+id]
	if session == nil {
		refuse(w, http.StatusNotFound, "invalid_request_error", "resource_missing", "No such checkout.session: "+id)
		return
	}
	if expire {
		if session["status"] != "open" {
			refuse(w, http.StatusBadRequest, "invalid_request_error", "",
				fmt.Sprintf("Only Checkout Sessions with a status in [\"open\"] can be expired. This Checkout Session has a status of `%s`.", session["status"]))
			return
		}
		session["status"] = "expired"
		if intent != nil {
			intent["status"] = "canceled"
		}
	}
	if intent != nil {
		session["payment_intent"] = intent
	}
	_ = json.NewEncoder(w).Encode(session)
}

func (s *standIn) serveIntent(w http.ResponseWriter, id string, cancel bool) {
	intent := s.intents[id]
	if intent == nil {
		refuse(w, http.StatusNotFound, "invalid_request_error", "resource_missing", "No such payment_intent: "+id)
		return
	}
	status := intent["status"].(string)
	switch {
	case cancel && strings.HasPrefix(id, "pi_of_") && status != "requires_capture":
		refuse(w, http.StatusBadRequest, "invalid_request_error", "", "You cannot cancel the PaymentIntent for a Checkout Session. Expire the "+
			"Checkout Session instead.")
		return
	case cancel && !strings.HasPrefix(status, "requires_"):
		refuse(w, http.StatusBadRequest, "invalid_request_error", "payment_intent_unexpected_state",
			"You cannot cancel this PaymentIntent because it has a status of "+status+".")
		return
	case cancel:
		intent["status"] = "canceled"
	}
	_ = json.NewEncoder(w).Encode(intent)
}

// changed returns the requests that changed something.
func (s *standIn) changed() (posts []string) {
	return slices.DeleteFunc(slices.Clone(s.requests), func(r string) bool { return strings.HasPrefix(r, "GET") })
}

func TestAPI_AnswersByTheStateOfThePayment(t *testing.T) {
	const open, complete, expired = "open", "complete", "expired"
	rows := []struct {
		session, paymentStatus, intent string // session "": the reference is an intent
		cancel, ask                    string
		after                          string // status of session or intent after the cancel; "": as before
		authorized                     string // answers to cancel and ask with AuthorizedIsPaid, if it matters
	}{
		{session: open, paymentStatus: "unpaid", cancel: "cancelled", ask: "unpaid", after: expired},
		{session: open, paymentStatus: "unpaid", intent: "requires_payment_method", cancel: "cancelled", ask: "unpaid", after: expired},
		{session: open, paymentStatus: "unpaid", intent: "requires_confirmation", cancel: "cancelled", ask: "unpaid", after: expired},
		{session: open, paymentStatus: "unpaid", intent: "requires_action", cancel: "cancelled", ask: "unknown", after: expired},
		{session: expired, paymentStatus: "unpaid", cancel: "cancelled", ask: "unpaid"},
		{session: expired, paymentStatus: "unpaid", intent: "canceled", cancel: "cancelled", ask: "unpaid"},
		{session: expired, paymentStatus: "unpaid", intent: "requires_payment_method", cancel: "cancelled", ask: "unpaid"},
		{session: expired, paymentStatus: "unpaid", intent: "processing", cancel: "unknown", ask: "unknown"},
		{session: expired, paymentStatus: "unpaid", intent: "succeeded", cancel: "paid", ask: "paid"},
		{session: complete, paymentStatus: "paid", intent: "succeeded", cancel: "paid", ask: "paid"},
		{session: complete, paymentStatus: "unpaid", intent: "processing", cancel: "unknown", ask: "unknown"},
		{session: complete, paymentStatus: "unpaid", intent: "requires_action", cancel: "unknown", ask: "unknown"}, // a voucher
		{session: complete, paymentStatus: "unpaid", intent: "requires_payment_method", cancel: "cancelled", ask: "unpaid"},
		{session: complete, paymentStatus: "unpaid", intent: "canceled", cancel: "cancelled", ask: "unpaid"},
		{session: complete, paymentStatus: "unpaid", intent: "requires_capture", cancel: "cancelled", ask: "unknown", authorized: "paid"},
		{session: complete, paymentStatus: "no_payment_required", cancel: "paid", ask: "paid"},
		{session: complete, paymentStatus: "paid", cancel: "paid", ask: "paid"}, // of a subscription
		{session: complete, paymentStatus: "unpaid", cancel: "unknown", ask: "unknown"},
		{session: "new state", paymentStatus: "unpaid", cancel: "unknown", ask: "unknown"},
		{intent: "requires_payment_method", cancel: "cancelled", ask: "unpaid", after: "canceled"},
		{intent: "requires_confirmation", cancel: "cancelled", ask: "unpaid", after: "canceled"},
		{intent: "requires_action", cancel: "cancelled", ask: "unknown", after: "canceled"},
		{intent: "requires_capture", cancel: "cancelled", ask: "unknown", after: "canceled", authorized: "paid"},
		{intent: "processing", cancel: "unknown", ask: "unknown"},
		{intent: "succeeded", cancel: "paid", ask: "paid"},
		{intent: "canceled", cancel: "cancelled", ask: "unpaid"},
		{intent: "new state", cancel: "unknown", ask: "unknown"},
	}
	for _, row := range rows {
		for _, authorizedIsPaid := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %s %s %t", row.session, row.paymentStatus, row.intent, authorizedIsPaid), func(t *testing.T) {
				s, reference := start(t), "pi_1"
				if row.session == "" {
					s.intent(reference, row.intent)
				} else {
					reference = "cs_1"
					s.session(reference, row.session, row.paymentStatus, row.intent)
				}
				cancel, ask, after := row.cancel, row.ask, row.after
				if authorizedIsPaid && row.authorized != "" {
					cancel, ask, after = row.authorized, row.authorized, ""
				}
				api := s.api(stripe.Options{AuthorizedIsPaid: authorizedIsPaid})
				got, err := api.Ask(t.Context(), reference)
				expect.That(t, string(got) == ask && err == nil && len(s.changed()) == 0, "Ask: %q, %v, want %q; it changed %v", got, err, ask, s.changed())
				for range 2 { // a repeated cancel has the same answer
					got, err := api.Cancel(t.Context(), reference)
					expect.That(t, string(got) == cancel && err == nil, "Cancel: %q, %v, want %q", got, err, cancel)
				}
				was, is := row.intent, s.intents["pi_1"]["status"]
				if row.session != "" {
					was, is = row.session, s.sessions["cs_1"]["status"]
				}
				if after == "" {
					after = was
				}
				expect.That(t, is == after, "its status is %v after the cancel, want %s", is, after)
			})
		}
	}
}

// The customer pays between the order being due and the cancel, or during the cancel.
func TestAPI_APaymentDuringTheCancelIsPaid(t *testing.T) {
	s := start(t)
	s.session("cs_1", "open", "unpaid", "requires_payment_method")
	s.intent("pi_2", "requires_action")
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			s.session("cs_1", "complete", "paid", "succeeded")
			s.intent("pi_2", "succeeded")
		}
		return false
	}
	for _, reference := range []string{"cs_1", "pi_2"} {
		got, err := s.api(stripe.Options{}).Cancel(t.Context(), reference)
		expect.That(t, got == payment.Paid && err == nil, "%s: %q, %v", reference, got, err)
	}
}

func TestAPI_AnOpenSessionIsOneCall(t *testing.T) {
	s := start(t)
	s.session("cs_1", "open", "unpaid", "")
	must.Get(s.api(stripe.Options{}).Cancel(t.Context(), "cs_1"))(t)
	expect.Same(t, s.requests, []string{"POST /v1/checkout/sessions/cs_1/expire"}, "requests")
}

// The clock of this machine is two hours ahead: Stripe's own clock says whether a link has expired.
func TestAPI_ALinkExpiresByTheClockOfStripe(t *testing.T) {
	s := start(t)
	s.session("cs_1", "open", "unpaid", "")
	s.sessions["cs_1"]["after_expiration"] = object{"recovery": object{"enabled": true, "expires_at": time.Now().Add(-time.Hour).Unix()}}
	s.before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Date", time.Now().Add(-2*time.Hour).UTC().Format(http.TimeFormat))
		return false
	}
	got, err := s.api(stripe.Options{}).Cancel(t.Context(), "cs_1")
	expect.That(t, got == payment.Unknown && err == nil, "%q, %v", got, err)
}

// What a session has besides its state decides, too.
func TestAPI_LooksAtMoreThanTheState(t *testing.T) {
	recovery := func(until time.Time) object { // its link opens a copy of an expired session
		return object{"after_expiration": object{"recovery": object{"enabled": true, "expires_at": until.Unix()}}}
	}
	for name, row := range map[string]struct {
		status, paymentStatus, intent string
		session, ofIntent             object // more fields
		cancel, ask                   payment.Answer
	}{
		"refunded": {"complete", "paid", "succeeded", nil, object{"latest_charge": object{"id": "ch_1", "object": "charge", "refunded": true}},
			payment.Cancelled, payment.Unpaid},
		"can be recovered":         {"open", "unpaid", "", recovery(time.Now().Add(time.Hour)), nil, payment.Unknown, payment.Unpaid},
		"could be recovered":       {"open", "unpaid", "", recovery(time.Now().Add(-time.Hour)), nil, payment.Cancelled, payment.Unpaid},
		"is only set up, not paid": {"complete", "no_payment_required", "", object{"mode": "setup"}, nil, payment.Unknown, payment.Unknown},
	} {
		s := start(t)
		s.session("cs_1", row.status, row.paymentStatus, row.intent)
		maps.Copy(s.sessions["cs_1"], row.session)
		if row.ofIntent != nil {
			maps.Copy(s.intents["pi_of_cs_1"], row.ofIntent)
		}
		api := s.api(stripe.Options{})
		got, err := api.Ask(t.Context(), "cs_1")
		expect.That(t, got == row.ask && err == nil, "%s: Ask: %q, %v, want %q", name, got, err, row.ask)
		got, err = api.Cancel(t.Context(), "cs_1")
		expect.That(t, got == row.cancel && err == nil, "%s: Cancel: %q, %v, want %q", name, got, err, row.cancel)
	}
}

// The reference of an intent that belongs to a session is a mistake of the shop.
func TestAPI_AnIntentOfASessionNeedsTheSession(t *testing.T) {
	s := start(t)
	s.session("cs_1", "open", "unpaid", "requires_payment_method")
	apitest.Failure{Says: "the id of the session"}.Check(t, "pi_of_cs_1", s.api(stripe.Options{}).Cancel)
}

func TestAPI_SaysWhetherStripeOrThePaymentIsAtFault(t *testing.T) {
	answer := func(status int, kind, code, retryAfter string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			refuse(w, status, kind, code, "the message")
			return true
		}
	}
	for name, row := range map[string]struct {
		before func(w http.ResponseWriter, r *http.Request) bool
		key    string
		fails  apitest.Failure
	}{
		"rate limit": {before: answer(429, "invalid_request_error", "rate_limit", "7"), fails: apitest.Failure{Unavailable: true, After: 7 * time.Second,
			Says: "the message"}},
		"lock":         {before: answer(429, "invalid_request_error", "lock_timeout", ""), fails: apitest.Failure{Says: "the message"}},
		"server error": {before: answer(500, "api_error", "", ""), fails: apitest.Failure{Unavailable: true, Says: "the message"}},
		"maintenance": {before: answer(503, "api_error", "", "3"), fails: apitest.Failure{Unavailable: true, After: 3 * time.Second,
			Says: "the message"}},
		"permission": {before: answer(403, "invalid_request_error", "", ""), fails: apitest.Failure{Unavailable: true, Says: "restricted key"}},
		"conflict":   {before: answer(409, "idempotency_error", "idempotency_key_in_use", ""), fails: apitest.Failure{Says: "the message"}},
		"key":        {key: "sk_test_wrong", fails: apitest.Failure{Unavailable: true, Says: "set another"}},
		"not found":  {fails: apitest.Failure{Says: "test and live mode"}},
		"not Stripe": {before: func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<html>"))
			return true
		}, fails: apitest.Failure{Unavailable: true}},
		"no response": {before: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, fails: apitest.Failure{Unavailable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.before = row.before
			for _, reference := range []string{"cs_1", "pi_1"} {
				row.fails.Check(t, reference, s.api(stripe.Options{Key: row.key}).Cancel)
			}
		})
	}
}

// The client's own retry has the same idempotency key, and the next cancel another: Stripe repeats its answer to a key for a day, also an error.
func TestAPI_ARetryHasTheSameIdempotencyKeyAndALaterCancelAnother(t *testing.T) {
	s := start(t)
	s.intent("pi_1", "requires_payment_method")
	fail := true
	s.before = func(w http.ResponseWriter, _ *http.Request) bool {
		if fail {
			fail = false
			panic(http.ErrAbortHandler) // the connection breaks
		}
		return false
	}
	api := s.api(stripe.Options{})
	for range 2 {
		got, err := api.Cancel(t.Context(), "pi_1")
		must.That(t, got == payment.Cancelled && err == nil, "%q, %v", got, err)
	}
	expect.That(t, len(s.keys) == 3 && s.keys[0] != "" && s.keys[0] == s.keys[1] && s.keys[1] != s.keys[2], "idempotency keys %q", s.keys)
}

func TestAPI_NamesTheConnectedAccount(t *testing.T) {
	s := start(t)
	s.session("cs_1", "complete", "paid", "succeeded")
	var accounts []string
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		accounts = append(accounts, r.Header.Get("Stripe-Account"))
		return false
	}
	must.Get(s.api(stripe.Options{Account: "acct_1"}).Cancel(t.Context(), "cs_1"))(t)
	expect.Same(t, accounts, []string{"acct_1", "acct_1"}, "accounts")
}

func TestAPI_OwnsSessionsAndIntents(t *testing.T) {
	api := start(t).api(stripe.Options{})
	apitest.Owns(t, api, map[string]bool{"cs_test_1": true, "pi_1": true, "5O190127TN364715T": false, "": false, "ch_1": false})
	_, err := stripe.New(stripe.Options{})
	expect.That(t, err != nil, "New without a key returned no error")
}

// The closer waits for three seconds, so the provider says within the limit of a question that it does not know.
func TestAPI_AStripeThatHangsIsUnknownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := must.Get(stripe.New(stripe.Options{Key: key, Transport: apitest.Hanging{}}))(t)
		apitest.UnknownInTime(t, api, "cs_1", "pi_1")
	})
}
