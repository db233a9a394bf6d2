package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The example of the specification.
func TestSign_IsThatOfStandardWebhooks(t *testing.T) {
	got := sign(must.Get(secretsOf(secret))(t), "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	expect.Equal(t, got, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "signature")
}

func TestSecrets_AreReadAndNeverShown(t *testing.T) {
	for raw, n := range map[string]int{
		secret: 1, secret + "," + newSecret: 2, newSecret + "\n" + secret + "\n": 2, secret + " " + newSecret: 2, "": 0, " \n": 0,
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": 0, "whsec_c2hvcnQ=": 0, "whsec_ÄÖ": 0, secret + ",whsec_" + strings.Repeat("QUFB", 22): 0,
	} {
		secrets, err := secretsOf(raw)
		expect.That(t, len(secrets) == n && (err != nil) == (n == 0), "%q: %d secrets, %v", raw, len(secrets), err)
		if err != nil && raw != "" {
			expect.That(t, strings.Contains(err.Error(), EnvSecret) && !strings.Contains(err.Error(), "MfKQ9"), "%v", err)
		}
	}
}

// While a secret is replaced, a receiver may know either.
func TestPost_IsSignedByEachSecret(t *testing.T) {
	v := &receiver{}
	to := newEndpoint(Settings{URL: "https://shop.example/e"}, must.Get(secretsOf(secret+","+newSecret))(t), v)
	body := `{"specversion":"1.0","id":"order.closed/a","source":"/orderclose","type":"order.closed"}`
	expect.NoError(t, to.post(t.Context(), event{body: []byte(body)}).err)
	got := v.take()[0]
	expect.That(t, signedBy(t, secret, got) && signedBy(t, newSecret, got), "%s", got.header.Get("webhook-signature"))
	expect.That(t, strings.HasPrefix(got.id, "msg_") && !strings.Contains(got.id, "."), "webhook-id is %q", got.id)
	other := must.Get(messageID([]byte(strings.Replace(body, "/a", "/b", 1))))(t)
	expect.That(t, other != got.id, "two events have one webhook-id")
}

func TestPost_BelievesNoReceiver(t *testing.T) {
	followed := false
	mux := http.NewServeMux()
	mux.HandleFunc("/followed", func(http.ResponseWriter, *http.Request) { followed = true })
	mux.HandleFunc("/redirects", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/followed", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/huge", func(w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 1<<20)
		for r.Context().Err() == nil { // without end
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("x", strings.Repeat("x", 200<<10)) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "86400")
		http.Error(w, "no such page: "+r.URL.String(), http.StatusServiceUnavailable)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for path, want := range map[string]string{
		"/redirects": "redirects are not followed", "/huge": "", "/headers": "server response headers exceeded",
		"/echo?token=hidden": "503", "/none": "is the url right?",
	} {
		to := newEndpoint(Settings{URL: server.URL + path}, must.Get(secretsOf(secret))(t), nil)
		o := to.post(t.Context(), event{body: []byte(`{"specversion":"1.0","id":"i","source":"s","type":"t"}`)})
		to.http.CloseIdleConnections()
		expect.That(t, (o.err == nil) == (want == "") && strings.Contains(o.text(), want), "%s: %v, want %q", path, o.err, want)
		expect.That(t, !strings.Contains(o.text(), "hidden") && !strings.Contains(o.text(), server.URL), "%s shows the url: %v", path, o.err)
		expect.AtMost(t, o.hold, maxHold, "the time without requests")
	}
	expect.That(t, !followed, "a redirect was followed")
}
