package signed_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

// TestClient_FollowsNoRedirectAndReadsNoEndlessAnswer: a redirect would send the key of the shop to another host.
func TestClient_FollowsNoRedirectAndReadsNoEndlessAnswer(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other host got a request with %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		for page := make([]byte, 64<<10); ; {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	}))
	defer provider.Close()
	client := signed.Client(nil)
	r, _ := http.NewRequest(http.MethodGet, provider.URL+"/moved", nil)
	r.Header.Set("Authorization", "Bearer key")
	if resp, _, err := signed.Do(client, r); err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("the redirect: %v, %v", resp, err)
	}
	resp, err := client.Get(provider.URL + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if tooLong := (*http.MaxBytesError)(nil); n > 1<<20 || !errors.As(err, &tooLong) {
		t.Errorf("%d bytes were read of an endless answer: %v", n, err)
	}
	r, _ = http.NewRequest(http.MethodGet, provider.URL+"/endless", nil)
	if _, _, err := signed.Do(client, r); !errors.As(err, new(*payments.Unavailable)) {
		t.Errorf("an endless answer: %v", err)
	}
}
