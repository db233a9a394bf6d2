package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Receivers are written by docs/webhook.md.
func TestPost_MatchesTheDocumentation(t *testing.T) {
	page := func(name string) string { return string(must.Get(os.ReadFile("../docs/" + name))(t)) }
	_, request, _ := strings.Cut(page("webhook.md"), "```http\nPOST /events\n")
	request, _, _ = strings.Cut(request, "\n```")
	headers, body, _ := strings.Cut(request, "\n\n")
	first := regexp.MustCompile("by `(whsec_\\S+)`").FindStringSubmatch(page("http.md"))[1]
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(1772366700, 0)))
		v := &receiver{}
		to := newEndpoint(t, "https://shop.example/events", v, first)
		expect.NoError(t, to.post(t.Context(), event{body: []byte(body)}).err)
		got := v.take()[0]
		expect.Equal(t, strings.Count(headers, "\n"), 3, "lines after the first")
		for line := range strings.SplitSeq(headers, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			expect.Equal(t, got.header.Get(name), value, "%s", name)
		}
		other := must.Get(messageID([]byte(strings.Replace(body, "000017", "000018", 1))))(t)
		expect.That(t, other != got.id, "two events have one webhook-id")
	})
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
		to := newEndpoint(t, server.URL+path, nil, secret)
		o := to.post(t.Context(), goodEvent)
		to.Close()
		expect.That(t, (o.err == nil) == (want == "") && strings.Contains(o.text(), want), "%s: %v, want %q", path, o.err, want)
		expect.That(t, !strings.Contains(o.text(), "hidden") && !strings.Contains(o.text(), server.URL), "%s shows the url: %v", path, o.err)
		expect.AtMost(t, o.wait, longestWait, "the wait")
	}
	expect.That(t, !followed, "a redirect was followed")
}

// goodEvent is an event that can be sent.
var goodEvent = event{body: []byte(`{"specversion":"1.0","id":"i","source":"s","type":"t"}`)}

// A refused event says nothing against the receiver; an answer that has another cause does.
func TestPost_SaysWhatAnAnswerMeans(t *testing.T) {
	works := []int{200, 204, 400, 402, 406, 409, 413, 415, 422, 431, 451}
	for _, code := range append(works, 302, 401, 403, 404, 405, 407, 408, 410, 421, 425, 426, 429, 500, 501, 502, 503, 504) {
		v := &receiver{answer: func(context.Context, request) (*http.Response, error) {
			return status(code, "Retry-After", "86400"), nil
		}}
		o := newEndpoint(t, "https://shop.example/events", v, secret).post(t.Context(), goodEvent)
		expect.Equal(t, o.works, slices.Contains(works, code), "the receiver works, as an answer of %d says", code)
		expect.That(t, o.fails == !o.works && (o.err == nil) == (code < 300) && o.wait <= longestWait, "%d: %+v", code, o)
	}
	v := &receiver{answer: func(context.Context, request) (*http.Response, error) { return nil, errors.New("connection refused") }}
	to := newEndpoint(t, "https://shop.example/events", v, secret)
	expect.That(t, to.post(t.Context(), goodEvent).fails, "no answer says nothing")
	expect.That(t, !to.post(t.Context(), event{body: []byte("{}")}).fails, "what is no event counts against the receiver")
}

// endless is a body of which no byte arrives.
type endless struct {
	ctx    context.Context
	closed chan time.Time
}

func (e endless) Read([]byte) (int, error) { <-e.ctx.Done(); return 0, e.ctx.Err() }
func (e endless) Close() error             { e.closed <- time.Now(); return nil }

// The status decides. The body is read beside, for a moment, so that the connection can be used again.
func TestPost_WaitsForNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, began := make(chan time.Time, 1), time.Now()
		v := &receiver{answer: func(ctx context.Context, _ request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: endless{ctx, closed}}, nil
		}}
		o := newEndpoint(t, "https://shop.example/events", v, secret).post(t.Context(), goodEvent)
		expect.That(t, o.works && o.err == nil, "%+v", o)
		expect.Equal(t, time.Since(began), 0, "the time until a body that does not end is left")
		expect.Equal(t, (<-closed).Sub(began), drainTimeout, "the time until it is closed")
	})
}
