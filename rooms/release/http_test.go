package release

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestHTTP_PostsTheReleaseWithItsKey(t *testing.T) {
	var got *http.Request
	var posted []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		posted, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	h := NewHTTP(server.URL+"/release", "s3cret")
	defer h.Client.CloseIdleConnections()
	key := wire.ReleaseKey("ord-17 %订", "ink", "close")
	must.Do(t, h.Release(t.Context(), Request{OrderID: "ord-17 %订", SKU: "ink", Quantity: 2, Key: key, EventID: "order.closed/ord-17 %订"}))
	if got.Method != "POST" || got.URL.Path != "/release" || got.Header.Get("Content-Type") != "application/json" ||
		got.Header.Get("Authorization") != "Bearer s3cret" || got.Header.Get("Idempotency-Key") != "11:ord-17%20%25%E8%AE%A2/3:ink/close" {
		t.Errorf("%s %s, headers %v", got.Method, got.URL, got.Header)
	}
	var have map[string]any
	must.Do(t, json.Unmarshal(posted, &have))
	want := map[string]any{"order_id": "ord-17 %订", "sku": "ink", "quantity": 2.0, "idempotency_key": key, "event_id": "order.closed/ord-17 %订"}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestHTTP_TheStatusIsTheResult(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		io.WriteString(w, "no such\n SKU "+strings.Repeat("x", 10_000))
	}))
	defer server.Close()
	h := NewHTTP(server.URL, "")
	defer h.Client.CloseIdleConnections()
	for s, want := range map[int]struct {
		result result
		away   bool
	}{
		200: {resultReleased, false}, 201: {resultReleased, false}, 204: {resultReleased, false}, 409: {resultAlready, false},
		400: {resultRefused, false}, 401: {resultRefused, false}, 404: {resultRefused, false}, 422: {resultRefused, false},
		408: {resultFailed, true}, 429: {resultFailed, true}, 502: {resultFailed, true}, 503: {resultFailed, true}, 504: {resultFailed, true},
		302: {resultFailed, false}, 500: {resultFailed, false}, 501: {resultFailed, false},
	} {
		status = s
		err := h.Release(t.Context(), Request{OrderID: "a", SKU: "b", Key: "c"})
		if resultOf(err) != want.result || unavailable(err) != want.away {
			t.Errorf("%d: %v", s, err)
		}
		if err != nil && s != 409 && !strings.Contains(err.Error(), "no such SKU") || err != nil && len(err.Error()) > 400 {
			t.Errorf("%d: the error is %v", s, err)
		}
	}
}

func TestHTTP_WithoutAClientUsesTheDefaultClient(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if err := (&HTTP{URL: server.URL}).Release(t.Context(), Request{Key: "k"}); err != nil {
		t.Error(err)
	}
}

func TestHTTP_NoResponseIsUnavailableAndTheErrorHasNoSecret(t *testing.T) {
	hanging := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel(); <-hanging }))
	defer server.Close()
	defer close(hanging)
	for url, ctx := range map[string]context.Context{server.URL + "/?token=hunter2": ctx, "http://127.0.0.1:1/hunter2": t.Context()} {
		h := NewHTTP(url, "hunter2")
		err := h.Release(ctx, Request{Key: "k"})
		h.Client.CloseIdleConnections()
		if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

// A gateway may answer with the request that it refuses.
func TestHTTP_ErrorsHaveNoSecretThatTheServiceRepeats(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, password, _ := r.BasicAuth()
		fmt.Fprintf(w, "no such page: %s %s %s %s", r.URL, r.Header.Get("Authorization"), password, r.URL.Query().Get("token"))
	}))
	defer server.Close()
	h := NewHTTP(strings.Replace(server.URL, "http://", "http://shop:hunter2%2F@", 1)+"/release?token=hunter%2F222", "")
	defer h.Client.CloseIdleConnections()
	for h.Token = range map[string]bool{"": true, "hunter2222": true} {
		err := h.Release(t.Context(), Request{Key: "k"})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no such page: …?") || strings.Contains(err.Error(), "hunter") ||
			strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte("shop:hunter2/"))) {
			t.Errorf("%v", err)
		}
	}
}
