package stripe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
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
	api := must.Get(stripe.New(o))(s.t)
	return api
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
				if string(got) != ask || err != nil || len(s.changed()) > 0 {
					t.Errorf("Ask: %q, %v, want %q; it changed %v", got, err, ask, s.changed())
				}
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

func TestAPI_ARefundedPaymentHasEnded(t *testing.T) {
	s := start(t)
	s.session("cs_1", "complete", "paid", "succeeded")
	s.intents["pi_of_cs_1"]["latest_charge"] = object{"id": "ch_1", "object": "charge", "refunded": true}
	api := s.api(stripe.Options{})
	if got, err := api.Cancel(t.Context(), "cs_1"); got != payment.Cancelled || err != nil {
		t.Errorf("Cancel: %q, %v", got, err)
	}
	if got, err := api.Ask(t.Context(), "cs_1"); got != payment.Unpaid || err != nil {
		t.Errorf("Ask: %q, %v", got, err)
	}
}

// A recovery link opens a copy of an expired session.
func TestAPI_ASessionThatCanBeRecoveredHasNotEnded(t *testing.T) {
	s := start(t)
	for id, until := range map[string]time.Time{"cs_1": time.Now().Add(time.Hour), "cs_2": time.Now().Add(-time.Hour)} {
		s.session(id, "open", "unpaid", "")
		s.sessions[id]["after_expiration"] = object{"recovery": object{"enabled": true, "expires_at": until.Unix()}}
	}
	api := s.api(stripe.Options{})
	for id, want := range map[string]payment.Answer{"cs_1": payment.Unknown, "cs_2": payment.Cancelled} {
		got, err := api.Cancel(t.Context(), id)
		expect.That(t, got == want && err == nil, "%s: %q, %v, want %q", id, got, err, want)
	}
}

func TestAPI_ASessionThatIsOnlySetUpIsNotPaid(t *testing.T) {
	s := start(t)
	s.session("cs_1", "complete", "no_payment_required", "")
	s.sessions["cs_1"]["mode"] = "setup"
	got, err := s.api(stripe.Options{}).Cancel(t.Context(), "cs_1")
	expect.That(t, got == payment.Unknown && err == nil, "%q, %v", got, err)
}

// The reference of an intent that belongs to a session is a mistake of the shop.
func TestAPI_AnIntentOfASessionNeedsTheSession(t *testing.T) {
	s := start(t)
	s.session("cs_1", "open", "unpaid", "requires_payment_method")
	got, err := s.api(stripe.Options{}).Cancel(t.Context(), "pi_of_cs_1")
	if got != payment.Unknown || err == nil || errors.Is(err, orderclose.ErrUnavailable) || !strings.Contains(err.Error(), "the id of the session") {
		t.Errorf("%q, %v", got, err)
	}
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
		before      func(w http.ResponseWriter, r *http.Request) bool
		key         string
		unavailable bool
		after       time.Duration
		says        string
	}{
		"rate limit":          {answer(429, "invalid_request_error", "rate_limit", "7"), "", true, 7 * time.Second, "the message"},
		"rate limit, no time": {answer(429, "invalid_request_error", "rate_limit", ""), "", true, 0, "the message"},
		"lock":                {answer(429, "invalid_request_error", "lock_timeout", ""), "", false, 0, "the message"},
		"server error":        {answer(500, "api_error", "", ""), "", true, 0, "the message"},
		"maintenance":         {answer(503, "api_error", "", "3"), "", true, 3 * time.Second, "the message"},
		"permission":          {answer(403, "invalid_request_error", "", ""), "", true, 0, "restricted key"},
		"conflict":            {answer(409, "idempotency_error", "idempotency_key_in_use", ""), "", false, 0, "the message"},
		"key":                 {nil, "sk_test_wrong", true, 0, "set another"},
		"not found":           {nil, "", false, 0, "test and live mode"},
		"not Stripe": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<html>"))
			return true
		}, "", true, 0, ""},
		"no response": {func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, "", true, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.before = row.before
			for _, reference := range []string{"cs_1", "pi_1"} {
				apitest.Failure{Unavailable: row.unavailable, After: row.after, Says: row.says}.Check(t, reference, s.api(stripe.Options{Key: row.key}).Cancel)
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
