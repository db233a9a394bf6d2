package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/rooms"
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
		env := map[string]string{config.EnvListen: listen}
		if out, stderr, code := run(t, env, "healthcheck"); code != 0 || out != "ready\n" {
			t.Errorf("%s: exit %d, %q, %q", listen, code, out, stderr)
		}
	}
	env := map[string]string{config.EnvListen: ":" + port}
	body = "ready\nwithout topic delay_1m: does not exist\nwith database db:3306/shop\n"
	if out, _, code := run(t, env, "healthcheck", "-o", "json"); code != 0 ||
		out != `{"ready":true,"waiting":[],"without":["topic delay_1m: does not exist"],"database":"db:3306/shop"}`+"\n" {
		t.Errorf("without a topic: exit %d, %q", code, out)
	}
	status, body = http.StatusServiceUnavailable, "database: connection refused\nwith database db:3306/shop\n"
	out, _, code := run(t, env, "healthcheck")
	expect.That(t, code == 3 && out == body, "not ready: exit %d, %q", code, out)
	if out, _, code := run(t, env, "healthcheck", "-o", "json"); code != 3 ||
		out != `{"ready":false,"waiting":["database: connection refused"],"without":[],"database":"db:3306/shop"}`+"\n" {
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
		"no address": {"9464", "3s", config.EnvListen, 2},
		"no time":    {"127.0.0.1:9464", "0s", "--timeout", 2},
	} {
		_, stderr, code := run(t, map[string]string{config.EnvListen: c.listen}, "healthcheck", "--timeout", c.timeout)
		expect.That(t, code == c.code && strings.Contains(stderr, c.want), "%s: exit %d, %q; want %d and %q", name, code, stderr, c.code, c.want)
	}
}

// The variables switch on the spans of a role, and those of the requests that it sends.
func TestRun_ExportsTheSpansOfARole(t *testing.T) {
	var mu sync.Mutex
	var exported, header string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		expect.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		exported += string(body)
	}))
	defer collector.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	stock := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		header = r.Header.Get("traceparent")
		stop()
	}))
	defer stock.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL) // the SDK reads it
	r := newSerialRig(t)
	if _, _, err := r.kafka.Apply(ctx, ops.TopicSpecs(r.cfg)); err != nil {
		t.Fatal(err)
	}
	value := must.Get(orderclose.OrderClosed{OrderID: "o", Release: []orderclose.Release{{SKU: "ink", Quantity: 1, Key: "k"}}}.Encode())(t)
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(strings.Split(r.brokers, ",")...)))(t)
	defer client.Close()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	must.Do(t, client.ProduceSync(ctx, &kgo.Record{
		Topic: r.cfg.Topics.Events, Key: []byte("o"), Value: value,
		Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("00-" + trace + "-b7ad6b7169203331-01")}},
	}).FirstErr())
	variables := map[string]string{
		config.EnvBrokers: r.brokers, "ORDERCLOSE_RELEASE_URL": stock.URL, config.EnvListen: "127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL,
	}
	start := func(ctx context.Context) (string, int) {
		var out, log bytes.Buffer
		code := Main(ctx, Env{Rooms: rooms.All(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &log, LookupEnv: func(name string) (string, bool) {
			value, ok := variables[name]
			return value, ok
		}}, []string{"run", "release", "--config", r.file})
		return log.String(), code
	}
	if log, code := start(ctx); code != 0 {
		t.Fatalf("exit %d\n%s", code, log)
	}
	if !strings.Contains(header, trace) || !strings.Contains(exported, "release") || !strings.Contains(exported, "HTTP POST") {
		t.Errorf("the service got %q, the collector\n%q", header, exported)
	}
	variables["OTEL_TRACES_EXPORTER"] = "zipkin"
	if log, code := start(t.Context()); code != int(Usage) || !strings.Contains(log, "OTEL_TRACES_EXPORTER") {
		t.Errorf("with another exporter: exit %d\n%s", code, log)
	}
}
