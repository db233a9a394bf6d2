package cli

import (
	"bytes"
	"context"
	"io"
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
)

// The variables switch on the spans of a role, and those of the requests that it sends.
func TestRun_ExportsTheSpansOfARole(t *testing.T) {
	var mu sync.Mutex
	var exported, header string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
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
	r := newRig(t)
	if _, _, err := r.kafka.Apply(ctx, ops.TopicSpecs(r.cfg)); err != nil {
		t.Fatal(err)
	}
	value, err := orderclose.OrderClosed{OrderID: "o", Release: []orderclose.Release{{SKU: "ink", Quantity: 1, Key: "k"}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(r.brokers, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	if err := client.ProduceSync(ctx, &kgo.Record{
		Topic: r.cfg.Topics.Events, Key: []byte("o"), Value: value,
		Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("00-" + trace + "-b7ad6b7169203331-01")}},
	}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{
		config.EnvBrokers: r.brokers, config.EnvReleaseURL: stock.URL, config.EnvListen: "127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL,
	}
	start := func(ctx context.Context) (string, int) {
		var out, log bytes.Buffer
		code := Main(ctx, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &log, LookupEnv: func(name string) (string, bool) {
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
