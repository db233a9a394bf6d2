package pipeline

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	body := must.Get(io.ReadAll(w.Body))(t)
	return w.Code, string(body)
}

// answers checks what a page answers. An empty body stands for any.
func answers(t *testing.T, h http.Handler, path string, code int, body string) {
	t.Helper()
	gotCode, got := get(t, h, path)
	expect.That(t, gotCode == code && (body == "" || got == body), "%s answers %d %q, want %d %q", path, gotCode, got, code, body)
}

// A Registerer that wraps a registry is no Gatherer: it has no /metrics, and the other routes work.
func TestHandler_WithoutAGatherer(t *testing.T) {
	a := must.Get(New(Options{Config: config.Default(), Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, prometheus.NewRegistry())}))(t)
	defer a.Close()
	answers(t, a.Handler(false), "/metrics", 404, "")
	answers(t, a.Handler(false), "/-/ready", 503, "Run: was not called yet\n")
}

// A process on another database than the checkout's does no harm that it could see itself, so it says which one it uses, without user and password.
func TestApp_NamesItsDatabase(t *testing.T) {
	var log bytes.Buffer
	a := must.Get(New(Options{Config: config.Default(), Servers: Servers{DSN: "shop:secret@tcp(db-2:3307)/shop?timeout=1s"},
		Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	defer a.Close()
	err := a.runPart(t.Context(), part{role: Closer, run: func(context.Context) error { return nil }})
	expect.That(t, err == nil && strings.Contains(log.String(), "msg=started role=closer database=db-2:3307/shop\n"), "%v, %s", err, &log)
	a.ready.waiting.remove(needRun)
	answers(t, a.Handler(false), "/-/ready", 200, "ready\nwith database db-2:3307/shop\n")
	a.ready.waiting.add("database", "refused")
	answers(t, a.Handler(false), "/-/ready", 503, "database: refused\nwith database db-2:3307/shop\n")
}

func TestHandler_IsReadyWhenItWaitsForNothing(t *testing.T) {
	a := &App{gatherer: prometheus.NewRegistry()}
	h, ready := a.Handler(false), &a.ready
	ready.waiting.add("kafka", "no route")
	ready.waiting.add("database", "refused")
	answers(t, h, "/-/ready", 503, "database: refused\nkafka: no route\n")
	answers(t, h, "/-/healthy", 200, "")
	ready.waiting.remove("kafka")
	ready.waiting.remove("database")
	answers(t, h, "/-/ready", 200, "")
	answers(t, h, "/debug/pprof/", 404, "")
}

// A page of another site can give its own host name the address of the loopback.
func TestHandler_ServesProfilesUnderAnAddressOnly(t *testing.T) {
	h := (&App{}).Handler(true)
	for host, want := range map[string]int{"127.0.0.1:9464": 200, "[::1]:9464": 200, "[::1]": 200, "localhost:9464": 200, "localhost": 200,
		"evil.example:9464": 421, "": 421} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/cmdline", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect.Equal(t, w.Code, want, "%q", host)
	}
}
