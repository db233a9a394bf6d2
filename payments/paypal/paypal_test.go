package paypal_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/payments/internal/apitest"
	"github.com/orderclose/orderclose/payments/paypal"
)

const id = "5O190127TN364715T"

type object = map[string]any

// standIn behaves as PayPal's public API does: tokens, and orders v2 with their captures.
type standIn struct {
	server *httptest.Server
	// before is called before each request about an order is answered; if it returns true, it has answered.
	before func(w http.ResponseWriter, r *http.Request) bool

	mu     sync.Mutex
	hosts  []string
	orders map[string]object
	tokens int    // that were given out
	expire int    // seconds until a token ends
	valid  string // the last token
	empty  bool   // the response has no token
}

func start(t *testing.T) *standIn {
	s := &standIn{orders: map[string]object{}, expire: 32400}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

// RoundTrip sends every call to the stand-in.
func (s *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.hosts = append(s.hosts, r.URL.Host)
	s.mu.Unlock()
	return apitest.Send(r, s.server)
}

func refuse(w http.ResponseWriter, status int, name, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"name": name, "message": message, "debug_id": "90957fca61718"})
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/v1/oauth2/token" {
		if user, password, _ := r.BasicAuth(); user != "client" || password != "secret" {
			refuse(w, http.StatusUnauthorized, "invalid_client", "Client Authentication failed")
			return
		}
		s.tokens++
		s.valid = fmt.Sprintf("token-%d", s.tokens)
		if s.empty {
			fmt.Fprint(w, "{}")
			return
		}
		_ = json.NewEncoder(w).Encode(object{"access_token": s.valid, "token_type": "Bearer", "expires_in": s.expire})
		return
	}
	if s.before != nil && s.before(w, r) {
		return
	}
	order := s.orders[strings.TrimPrefix(r.URL.Path, "/v2/checkout/orders/")]
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.valid:
		refuse(w, http.StatusUnauthorized, "AUTHENTICATION_FAILURE", "Authentication failed")
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, "METHOD_NOT_SUPPORTED", "the module changes nothing")
	case order == nil:
		refuse(w, http.StatusNotFound, "RESOURCE_NOT_FOUND", "The specified resource does not exist.")
	default:
		_ = json.NewEncoder(w).Encode(order)
	}
}

// order adds an order with captures of these statuses.
func (s *standIn) order(intent, status string, captures ...string) {
	var list []object
	for _, c := range captures {
		list = append(list, object{"id": "3C679366HH908993F", "status": c})
	}
	unit := object{"reference_id": "default"}
	if list != nil {
		unit["payments"] = object{"captures": list}
	}
	s.orders[id] = object{"id": id, "intent": intent, "status": status, "purchase_units": []object{unit}}
}

func (s *standIn) api(t *testing.T, o paypal.Options) *paypal.API {
	t.Helper()
	if o.ClientID == "" {
		o.ClientID, o.Secret = "client", "secret"
	}
	o.Transport = s
	return must.Get(paypal.New(o))(t)
}

func TestAPI_AnswersByTheStateOfTheOrder(t *testing.T) {
	for _, row := range []struct {
		intent, status, captures string
		cancel, ask              string // without the promise
		promisedCancel           string // with it; "": the same
		promisedAsk              string
	}{
		{"CAPTURE", "CREATED", "", "unknown", "unpaid", "cancelled", ""},
		{"CAPTURE", "PAYER_ACTION_REQUIRED", "", "unknown", "unpaid", "cancelled", ""},
		{"CAPTURE", "APPROVED", "", "unknown", "unknown", "cancelled", "unpaid"},
		{"CAPTURE", "APPROVED", "PENDING", "unknown", "unknown", "", ""},
		{"CAPTURE", "PAYER_ACTION_REQUIRED", "PENDING", "unknown", "unknown", "", ""},
		{"CAPTURE", "SAVED", "", "unknown", "unknown", "", ""},
		{"CAPTURE", "NEW", "", "unknown", "unknown", "", ""},
		{"CAPTURE", "VOIDED", "", "cancelled", "unpaid", "", ""},
		{"CAPTURE", "COMPLETED", "COMPLETED", "paid", "paid", "", ""},
		{"CAPTURE", "COMPLETED", "PARTIALLY_REFUNDED", "paid", "paid", "", ""},
		{"CAPTURE", "COMPLETED", "DECLINED COMPLETED", "paid", "paid", "", ""},
		{"CAPTURE", "COMPLETED", "PENDING", "unknown", "unknown", "", ""},
		{"CAPTURE", "COMPLETED", "DECLINED PENDING", "unknown", "unknown", "", ""},
		{"CAPTURE", "COMPLETED", "NEW", "unknown", "unknown", "", ""},
		{"CAPTURE", "COMPLETED", "DECLINED", "cancelled", "unpaid", "", ""},
		{"CAPTURE", "COMPLETED", "FAILED", "cancelled", "unpaid", "", ""},
		{"CAPTURE", "COMPLETED", "REFUNDED", "cancelled", "unpaid", "", ""},
		{"CAPTURE", "COMPLETED", "", "unknown", "unknown", "", ""},
		{"AUTHORIZE", "CREATED", "", "unknown", "unknown", "", ""},
		{"AUTHORIZE", "APPROVED", "", "unknown", "unknown", "", ""},
		{"AUTHORIZE", "COMPLETED", "", "unknown", "unknown", "", ""},
		{"AUTHORIZE", "COMPLETED", "COMPLETED", "paid", "paid", "", ""},
	} {
		for _, promised := range []bool{false, true} {
			s := start(t)
			s.order(row.intent, row.status, strings.Fields(row.captures)...)
			api := s.api(t, paypal.Options{ShopCapturesBeforeDue: promised})
			cancel, ask := row.cancel, row.ask
			if promised {
				cancel, ask = cmp.Or(row.promisedCancel, cancel), cmp.Or(row.promisedAsk, ask)
			}
			got, err := api.Cancel(t.Context(), id)
			expect.That(t, string(got) == cancel && err == nil, "%+v, promise %t: Cancel is %q, %v, want %q", row, promised, got, err, cancel)
			got, err = api.Ask(t.Context(), id)
			expect.That(t, string(got) == ask && err == nil, "%+v, promise %t: Ask is %q, %v, want %q", row, promised, got, err, ask)
		}
	}
}

// Many calls share a token, and a token that PayPal does not accept any more is replaced.
func TestAPI_TokensAreKeptAndReplaced(t *testing.T) {
	s := start(t)
	s.order("CAPTURE", "VOIDED")
	api := s.api(t, paypal.Options{Sandbox: true})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			got, err := api.Cancel(t.Context(), id)
			expect.That(t, got == payment.Cancelled && err == nil, "%q, %v", got, err)
		})
	}
	calls.Wait()
	expect.Equal(t, s.tokens, 1, "tokens for 20 calls")
	for _, host := range s.hosts {
		expect.Equal(t, host, "api.sandbox.paypal.com", "the sandbox is at")
	}
	s.mu.Lock()
	s.valid = "another"
	s.mu.Unlock()
	apitest.Failure{Unavailable: true}.Check(t, id, api.Cancel) // with a token that was revoked
	got, err := api.Cancel(t.Context(), id)
	expect.That(t, got == payment.Cancelled && err == nil && s.tokens == 2, "with the next token: %q, %v, %d tokens", got, err, s.tokens)

	s = start(t)
	s.order("CAPTURE", "VOIDED")
	s.expire = 100
	api = s.api(t, paypal.Options{})
	for range 2 {
		expect.NoError(t, expect.Err(api.Cancel(t.Context(), id)))
	}
	expect.That(t, s.tokens == 2 && s.hosts[0] == "api.paypal.com", "%d tokens that end within two minutes, from %s", s.tokens, s.hosts[0])
}

func TestAPI_SaysWhetherPayPalOrThePaymentIsAtFault(t *testing.T) {
	answer := func(status int, retryAfter string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			refuse(w, status, "A_NAME", "the message")
			return true
		}
	}
	for name, row := range map[string]struct {
		before func(http.ResponseWriter, *http.Request) bool
		secret string
		empty  bool
		fails  apitest.Failure
	}{
		"rate limit":   {before: answer(429, "7"), fails: apitest.Failure{Unavailable: true, After: 7 * time.Second, Says: "the message"}},
		"server error": {before: answer(500, ""), fails: apitest.Failure{Unavailable: true, Says: "90957fca61718"}},
		"permission":   {before: answer(403, ""), fails: apitest.Failure{Unavailable: true, Says: "secret"}},
		"invalid":      {before: answer(422, ""), fails: apitest.Failure{Says: "A_NAME"}},
		"not found":    {fails: apitest.Failure{Says: "it has expired, or"}},
		"secret":       {secret: "wrong", fails: apitest.Failure{Unavailable: true, Says: "are client id and secret right"}},
		"no token":     {empty: true, fails: apitest.Failure{Unavailable: true, Says: "has no token"}},
		"not PayPal": {before: func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>")
			return true
		}, fails: apitest.Failure{Unavailable: true}},
		"no response": {before: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, fails: apitest.Failure{Unavailable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.before, s.empty = row.before, row.empty
			o := paypal.Options{ShopCapturesBeforeDue: true}
			if row.secret != "" {
				o.ClientID, o.Secret = "client", row.secret
			}
			api := s.api(t, o)
			for range 2 {
				row.fails.Check(t, id, api.Cancel)
			}
		})
	}
}

func TestAPI_OwnsPayPalOrders(t *testing.T) {
	api := start(t).api(t, paypal.Options{})
	apitest.Owns(t, api, map[string]bool{id: true, "cs_test_1": false, "pi_1": false, "": false, "../../v1/x": false})
	_, err := paypal.New(paypal.Options{ClientID: "x"})
	expect.That(t, err != nil, "New without a secret returned no error")
}

// The closer waits for three seconds, so the provider says within the limit of a question that it does not know.
func TestAPI_APayPalThatHangsIsUnknownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := must.Get(paypal.New(paypal.Options{ClientID: "client", Secret: "secret", ShopCapturesBeforeDue: true, Transport: apitest.Hanging{}}))(t)
		apitest.UnknownInTime(t, api, id)
	})
}
