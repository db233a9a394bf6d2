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
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/rooms"
)

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
