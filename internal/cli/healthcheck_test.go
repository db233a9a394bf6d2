package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestHealthcheck_PrintsTheAnswerOfTheProcess(t *testing.T) {
	status, body := http.StatusOK, "ready\n" // of GET /-/ready
	mux := http.NewServeMux()
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, listen := range []string{"127.0.0.1:" + port, ":" + port, "0.0.0.0:" + port} {
		env := map[string]string{environ.EnvListen: listen}
		out, stderr, code := run(t, env, "healthcheck")
		expect.That(t, code == 0 && out == "ready\n", "%s: exit %d, %q, %q", listen, code, out, stderr)
	}
	env := map[string]string{environ.EnvListen: ":" + port}
	body = "ready\nwithout topic delay_1m: does not exist\nwith database db:3306/shop\n"
	if out, _, code := run(t, env, "healthcheck", "-o", "json"); code != 0 ||
		out != `{"ready":true,"says":["ready","without topic delay_1m: does not exist","with database db:3306/shop"]}`+"\n" {
		t.Errorf("without a topic: exit %d, %q", code, out)
	}
	status, body = http.StatusServiceUnavailable, "database: connection refused\nwith database db:3306/shop\n"
	out, _, code := run(t, env, "healthcheck")
	expect.That(t, code == 3 && out == body, "not ready: exit %d, %q", code, out)
	if out, _, code := run(t, env, "healthcheck", "-o", "json"); code != 3 ||
		out != `{"ready":false,"says":["database: connection refused","with database db:3306/shop"]}`+"\n" {
		t.Errorf("not ready: exit %d, %q", code, out)
	}
	if out, _, code := run(t, env, "healthcheck", "--alive"); code != 0 || out != "healthy\n" {
		t.Errorf("alive: exit %d, %q", code, out)
	}
}

func TestHealthcheck_ReportsBadAnswers(t *testing.T) {
	stranger := httptest.NewServer(http.NotFoundHandler())
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	defer stranger.Close()
	defer hangs.Close()
	for name, c := range map[string]struct {
		listen, timeout, want string
		code                  int
	}{
		"no process": {gone.Listener.Addr().String(), "3s", "no answer", 1},
		"a stranger": {stranger.Listener.Addr().String(), "3s", "is that orderclose?", 1},
		"it hangs":   {hangs.Listener.Addr().String(), "100ms", "no answer", 7},
		"no address": {"9464", "3s", environ.EnvListen, 2},
		"no time":    {"127.0.0.1:9464", "0s", "--timeout", 2},
	} {
		_, stderr, code := run(t, map[string]string{environ.EnvListen: c.listen}, "healthcheck", "--timeout", c.timeout)
		expect.That(t, code == c.code && strings.Contains(stderr, c.want), "%s: exit %d, %q; want %d and %q", name, code, stderr, c.code, c.want)
	}
}
