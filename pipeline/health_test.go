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

// A Registerer that wraps a registry is no Gatherer: it has no /metrics, and the other routes work.
func TestHandler_WithoutAGatherer(t *testing.T) {
	a := must.Get(New(Options{Config: config.Default(), Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, prometheus.NewRegistry())}))(t)
	defer a.Close()
	if code, _ := get(t, a.Handler(false), "/metrics"); code != 404 {
		t.Errorf("/metrics answers %d", code)
	}
	if code, body := get(t, a.Handler(false), "/-/ready"); code != 503 || body != "Run: was not called yet\n" {
		t.Errorf("/-/ready answers %d %q", code, body)
	}
}

// A process on another database than the checkout's does no harm that it could see itself, so it
// says which one it uses, without user and password.
func TestApp_NamesItsDatabase(t *testing.T) {
	var log bytes.Buffer
	a := must.Get(New(Options{Config: config.Default(), Servers: Servers{DSN: "shop:secret@tcp(db-2:3307)/shop?timeout=1s"},
		Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	defer a.Close()
	err := a.runPart(t.Context(), part{role: Closer, run: func(context.Context) error { return nil }})
	expect.That(t, err == nil && strings.Contains(log.String(), "msg=started role=closer database=db-2:3307/shop\n"), "%v, %s", err, &log)
	a.ready.waiting.remove(needRun)
	if code, body := get(t, a.Handler(false), "/-/ready"); code != 200 || body != "ready\nwith database db-2:3307/shop\n" {
		t.Errorf("%d %q", code, body)
	}
	a.ready.waiting.add("database", "refused")
	if code, body := get(t, a.Handler(false), "/-/ready"); code != 503 || body != "database: refused\nwith database db-2:3307/shop\n" {
		t.Errorf("%d %q", code, body)
	}
}

func TestHandler_IsReadyWhenItWaitsForNothing(t *testing.T) {
	a := &App{gatherer: prometheus.NewRegistry()}
	h, ready := a.Handler(false), &a.ready
	ready.waiting.add("kafka", "no route")
	ready.waiting.add("database", "refused")
	if code, body := get(t, h, "/-/ready"); code != 503 || body != "database: refused\nkafka: no route\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := get(t, h, "/-/healthy"); code != 200 {
		t.Errorf("healthy is %d although only servers are away", code)
	}
	ready.waiting.remove("kafka")
	ready.waiting.remove("database")
	if code, _ := get(t, h, "/-/ready"); code != 200 {
		t.Errorf("ready is %d", code)
	}
	if code, _ := get(t, h, "/debug/pprof/"); code != 404 {
		t.Errorf("profiles answer %d although they are not enabled", code)
	}
}

// A page of another site can give its own host name the address of the loopback.
func TestHandler_ServesProfilesUnderAnAddressOnly(t *testing.T) {
	h := (&App{}).Handler(true)
	for host, want := range map[string]int{"127.0.0.1:9464": 200, "[::1]:9464": 200, "[::1]": 200, "localhost:9464": 200, "localhost": 200, "evil.example:9464": 421, "": 421} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/cmdline", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}
