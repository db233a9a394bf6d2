// Package apitest has what the tests of the providers' APIs check in the same way. Only tests import it.
package apitest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

// NewKey returns a new RSA key.
func NewKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

// PrivateText returns a key as a file has it.
func PrivateText(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// PublicText returns the public key of key as a file has it.
func PublicText(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)}))
}

// Sign returns the signature of a message, as Alipay and WeChat Pay sign.
func Sign(key *rsa.PrivateKey, message string) string {
	signature, err := signed.Sign(key, message)
	if err != nil {
		panic(err)
	}
	return signature
}

// Send sends a call of a provider to a stand-in.
func Send(r *http.Request, standIn *httptest.Server) (*http.Response, error) {
	u, err := url.Parse(standIn.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
	return standIn.Client().Transport.RoundTrip(r)
}

// Hanging is a provider that answers nothing until the caller has gone.
type Hanging struct{}

// RoundTrip implements http.RoundTripper.
func (Hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// UnknownInTime checks that a provider that hangs is unavailable within the limit of a question: the closer waits for
// three seconds. Call it in a bubble of synctest.
func UnknownInTime(t *testing.T, api payments.API, references ...string) {
	t.Helper()
	of := func(_ context.Context, ids []string) (map[string][]string, error) {
		all := map[string][]string{}
		for _, order := range ids {
			all[order] = references
		}
		return all, nil
	}
	p, err := payments.New(payments.Options{References: of, APIs: []payments.API{api}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context, []string) ([]payment.Answer, error){"ask": p.Ask, "cancel": p.Cancel} {
		time.Sleep(time.Minute) // the API is not called for a while after it was unavailable
		began := time.Now()
		answers, err := call(t.Context(), strings.Fields("a b c d e f g h i j k l m n o p q r s t"))
		if took := time.Since(began); took < time.Second || took > payments.QuestionLimit || !errors.Is(err, orderclose.ErrUnavailable) || answers != nil {
			t.Errorf("%s: %v after %v, %v", name, answers, took, err)
		}
	}
}

// Failure is how a call of an API must fail.
type Failure struct {
	Unavailable bool
	After       time.Duration // for how long the API wants no calls
	Says        string        // a part of the error
}

// Check calls an API, such as its method Ask, and checks how the call fails.
func (f Failure) Check(t *testing.T, reference string, call func(context.Context, string) (payment.Answer, error)) {
	t.Helper()
	got, err := call(t.Context(), reference)
	u, unavailable := errors.AsType[*payments.Unavailable](err)
	if got != payment.Unknown || err == nil || unavailable != f.Unavailable || !strings.Contains(err.Error(), f.Says) {
		t.Fatalf("%s: %q, %v", reference, got, err)
	}
	if u != nil && u.After != f.After {
		t.Errorf("%s: wants no calls for %v, not %v", reference, u.After, f.After)
	}
}

// BelievesNot checks that an API believes no response: the provider counts as unavailable.
func BelievesNot(t *testing.T, name, reference string, api payments.API) {
	t.Helper()
	for what, call := range map[string]func(context.Context, string) (payment.Answer, error){"Cancel": api.Cancel, "Ask": api.Ask} {
		got, err := call(t.Context(), reference)
		if _, unavailable := errors.AsType[*payments.Unavailable](err); got != payment.Unknown || !unavailable {
			t.Errorf("%s: %s: %q, %v", name, what, got, err)
		}
	}
}

// LostAnswer checks a cancel whose answer is lost, and that the next cancel finds what the first has done.
func LostAnswer(t *testing.T, api payments.API, reference string) {
	t.Helper()
	if got, err := api.Cancel(t.Context(), reference); got != payment.Unknown || !errors.Is(err, orderclose.ErrUnavailable) {
		t.Errorf("the answer is lost: %q, %v", got, err)
	}
	if got, err := api.Cancel(t.Context(), reference); got != payment.Cancelled || err != nil {
		t.Errorf("the next cancel: %q, %v", got, err)
	}
}

// CallerGone checks that a cancel returns when its caller has gone. The stand-in must call the function that it gives to
// hang, once, before it answers.
func CallerGone(t *testing.T, api payments.API, reference string, hang func(wait func())) {
	t.Helper()
	arrived, leave := make(chan bool), make(chan bool)
	defer close(leave)
	hang(func() { close(arrived); <-leave })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if got, err := api.Cancel(ctx, reference); got != payment.Unknown || !errors.Is(err, orderclose.ErrUnavailable) {
		t.Errorf("%q, %v", got, err)
	}
}

// Owns checks which references are of an API.
func Owns(t *testing.T, api payments.API, references map[string]bool) {
	t.Helper()
	for reference, want := range references {
		if api.Owns(reference) != want {
			t.Errorf("Owns(%q) is %t", reference, !want)
		}
	}
}
