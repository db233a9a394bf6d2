package webhook

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Receivers are written by docs/webhook.md.
func TestPost_MatchesTheDocumentation(t *testing.T) {
	page := func(name string) string { return string(must.Get(os.ReadFile("../../docs/" + name))(t)) }
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
		o := to.post(t.Context(), event{body: []byte(`{"specversion":"1.0","id":"i","source":"s","type":"t"}`)})
		to.Close()
		expect.That(t, (o.err == nil) == (want == "") && strings.Contains(o.text(), want), "%s: %v, want %q", path, o.err, want)
		expect.That(t, !strings.Contains(o.text(), "hidden") && !strings.Contains(o.text(), server.URL), "%s shows the url: %v", path, o.err)
		expect.AtMost(t, o.hold, maxHold, "the time without requests")
	}
	expect.That(t, !followed, "a redirect was followed")
}
