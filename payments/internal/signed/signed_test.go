package signed_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/internal/apitest"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

func text(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// forms are a key and its public key in the forms in which providers and tools write them.
type forms struct {
	pkcs1, pkcs8, base64PKCS1, base64PKCS8             string
	public, publicPKCS1, certificate, base64PublicText string
}

func keyForms(t *testing.T, key *rsa.PrivateKey) (f forms) {
	t.Helper()
	pkcs8 := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	public := must.Get(x509.MarshalPKIXPublicKey(&key.PublicKey))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(17), Subject: pkix.Name{CommonName: "Tenpay.com Root CA"}}
	certificate := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	pkcs1 := x509.MarshalPKCS1PrivateKey(key)
	return forms{
		text("RSA PRIVATE KEY", pkcs1), text("PRIVATE KEY", pkcs8), base64.StdEncoding.EncodeToString(pkcs1), base64.StdEncoding.EncodeToString(pkcs8),
		text("PUBLIC KEY", public), text("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey)), text("CERTIFICATE", certificate),
		base64.StdEncoding.EncodeToString(public),
	}
}

func TestKeys_SignAndVerify(t *testing.T) {
	shop, provider := apitest.NewKey(), apitest.NewKey()
	s, p := keyForms(t, shop), keyForms(t, provider)
	for i, private := range []string{s.pkcs1, s.pkcs8, s.base64PKCS1, s.base64PKCS8, s.base64PKCS8[:64] + "\r\n" + s.base64PKCS8[64:]} {
		for j, public := range []string{p.public, p.publicPKCS1, p.certificate, p.base64PublicText} {
			ours, err := signed.NewKeys("a", private, "b", public)
			must.That(t, err == nil, "%d, %d: %v", i, j, err)
			theirs := must.Get(signed.NewKeys("a", p.pkcs8, "b", s.public))(t)
			request, err := ours.Sign("question")
			expect.That(t, err == nil && theirs.Verify("question", request) && !theirs.Verify("question.", request) && !theirs.Verify("question", "?"),
				"%d, %d: the signature of a request, %v", i, j, err)
			response, err := signed.Sign(provider, "answer")
			expect.That(t, err == nil && ours.Verify("answer", response) && !ours.Verify("answer", request) && !ours.Verify("answer", ""),
				"%d, %d: the signature of a response, %v", i, j, err)
		}
	}
}

func TestKeys_SayWhatIsWrong(t *testing.T) {
	rsaKey, short := apitest.NewKey(), must.Get(rsa.GenerateKey(rand.Reader, 1024))(t)
	good, other, weak := keyForms(t, rsaKey), keyForms(t, apitest.NewKey()), keyForms(t, short)
	ec := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	ecPrivate := must.Get(x509.MarshalPKCS8PrivateKey(ec))(t)
	ecPublic := must.Get(x509.MarshalPKIXPublicKey(&ec.PublicKey))(t)
	for name, row := range map[string]struct{ private, public, says string }{
		"no private key":           {"", other.public, "private: it is no private RSA key"},
		"not PEM":                  {"hunter2, not a key", other.public, "private: it is neither PEM"},
		"cut off":                  {good.pkcs8[:800], other.public, "private: it is neither PEM"},
		"base64 of something":      {"aHVudGVyMg==", other.public, "private: it is no private RSA key"},
		"public for private":       {good.public, other.public, "private: it is a public key; write the private key"},
		"base64 of the public key": {good.base64PublicText, other.public, "private: it is a public key; write the private key"},
		"certificate for private":  {good.certificate, other.public, "private: it is a certificate; write the private key"},
		"with a password":          {text("ENCRYPTED PRIVATE KEY", []byte("x")), other.public, "private: it is encrypted"},
		"another kind":             {text("PRIVATE KEY", ecPrivate), other.public, "private: it is a private key of another kind"},
		"short":                    {weak.pkcs8, other.public, "private: it has 1024 bits"},
		"no public key":            {good.pkcs8, "", "public: it is neither a public RSA key"},
		"private for public":       {good.pkcs8, other.pkcs8, "public: it is a private key; write the public key"},
		"public key not PEM":       {good.pkcs8, "hunter2!", "public: it is neither PEM"},
		"public of another kind":   {good.pkcs8, text("PUBLIC KEY", ecPublic), "public: it is neither a public RSA key"},
		"short public key":         {good.pkcs8, weak.public, "public: it has 1024 bits"},
		"own public key":           {good.pkcs8, good.public, "public: it is your own public key"},
	} {
		_, err := signed.NewKeys("private", row.private, "public", row.public)
		expect.That(t, err != nil && strings.HasPrefix(err.Error(), row.says) && !strings.Contains(err.Error(), "hunter2"), "%s: %v", name, err)
	}
}

func TestParseTrade(t *testing.T) { synctest.Test(t, testParseTrade) }

func testParseTrade(t *testing.T) {
	now := time.Now()
	for reference, want := range map[string]struct {
		number string // "": an error
		open   bool
		answer payment.Answer
	}{
		"pay:ORDER_17a-*|@": {"ORDER_17a-*|@", true, payment.Unknown},
		fmt.Sprintf("pay:7:%d", now.Add(-time.Minute).Unix()):    {"7", false, payment.Cancelled},
		fmt.Sprintf("pay:7:%d", now.Add(-15*time.Second).Unix()): {"7", true, payment.Unknown}, // the clocks differ
		fmt.Sprintf("pay:7:%d", now.Add(time.Hour).Unix()):       {"7", true, payment.Unknown},
		"pay:":                           {},
		"pay::1767225600":                {},
		"pay:7:":                         {},
		"pay:7:0":                        {},
		"pay:7:-5":                       {},
		"pay:7:tomorrow":                 {},
		"pay:7:1767225600:1":             {},
		"pay:7/close":                    {},
		"pay:../7":                       {},
		"pay:7?x=1":                      {},
		"pay:7 ":                         {},
		"other:7":                        {},
		"7":                              {},
		"":                               {},
		"pay:" + strings.Repeat("7", 65): {},
	} {
		trade, err := signed.ParseTrade("pay", reference)
		expect.That(t, trade.Number == want.number && (err == nil) == (want.number != ""), "%q: %q, %v", reference, trade.Number, err)
		if err != nil {
			continue
		}
		now := time.Now()
		answer, err := trade.Missing(now)
		if trade.MayBeOpened(now) != want.open || answer != want.answer || (err != nil) != (strings.Count(reference, ":") == 1) {
			t.Errorf("%q: may be opened: %t; does not exist: %q, %v", reference, trade.MayBeOpened(now), answer, err)
		}
		answer, err = trade.Missing(time.Time{})
		expect.That(t, answer == payment.Unknown && err != nil && trade.MayBeOpened(time.Time{}), "%q, at an unknown time: %q, %v", reference, answer, err)
	}
}

func TestDo_FailsAsUnavailable(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
		case "/cut":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "x")
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		default:
			_, _ = io.WriteString(w, "good")
		}
	}))
	defer server.Close()
	get := func(path string) (*http.Response, []byte, error) {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil))(t)
		return signed.Do(signed.Client(nil), request)
	}
	for _, path := range []string{"/long", "/cut"} {
		var u *payments.Unavailable
		_, _, err := get(path)
		expect.That(t, errors.As(err, &u), "%s: %v", path, err)
	}
	resp, _, err := get("/moved")
	expect.That(t, err == nil && resp.StatusCode == http.StatusFound, "a redirect is followed: %v, %v", resp, err)
	resp, body, err := get("/")
	expect.That(t, err == nil && resp.StatusCode == http.StatusOK && string(body) == "good", "%v, %q, %v", resp, body, err)
}

func TestDo_EndsAfterTheLimitOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://provider.test/", nil))(t)
		began := time.Now()
		var u *payments.Unavailable
		_, _, err := signed.Do(signed.Client(apitest.Hanging{}), request)
		expect.That(t, errors.As(err, &u) && time.Since(began) == payments.CallLimit, "%v after %v", err, time.Since(began))
	})
}
