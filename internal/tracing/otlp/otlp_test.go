package otlp

import (
	"compress/gzip"
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	_ "github.com/glebarez/go-sqlite"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/tracing"
)

func lookup(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { value, ok := variables[name]; return value, ok }
}

func TestFromEnvironment_IsOffUntilAVariableAsksForIt(t *testing.T) {
	for _, c := range []struct {
		variables string
		on        bool
		err       string
	}{
		{"", false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1", true, ""},
		{"OTEL_TRACES_EXPORTER=otlp", true, ""},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", false, ""},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_SDK_DISABLED=true", false, ""},
		{"OTEL_SERVICE_NAME=shop", false, ""},
		{"OTEL_TRACES_EXPORTER=zipkin", false, "OTEL_TRACES_EXPORTER"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, "OTEL_EXPORTER_OTLP_PROTOCOL"},
	} {
		variables := map[string]string{}
		for _, field := range strings.Fields(c.variables) {
			name, value, _ := strings.Cut(field, "=")
			variables[name] = value
		}
		e, err := FromEnvironment(t.Context(), lookup(variables), "v1", slog.New(slog.DiscardHandler))
		expect.That(t, (e != nil) == c.on && (err != nil) == (c.err != "") && (err == nil || strings.Contains(err.Error(), c.err)),
			"%s: %v, %v", c.variables, e, err)
		e.Close()
	}
}

// receiver is a collector. It counts spans by name, and has the resource of the last request.
type receiver struct {
	t        *testing.T
	spans    map[string]int
	resource map[string]string
}

func (c *receiver) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	data, err := io.ReadAll(body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &request)
	}
	expect.NoError(c.t, err)
	for _, of := range request.ResourceSpans {
		for _, a := range of.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				c.spans[s.Name]++
			}
		}
	}
}

// connector connects to SQLite.
type connector struct{ of driver.Driver }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.of.Open(":memory:") }
func (c connector) Driver() driver.Driver                        { return c.of }

func TestExporter_ExportsStatementsAndRequestsOfTracedOrdersOnly(t *testing.T) {
	got := &receiver{t, map[string]int{}, map[string]string{}}
	server := httptest.NewServer(got)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	e := must.Get(FromEnvironment(t.Context(), lookup(map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}), "v1", slog.New(slog.DiscardHandler)))(t)
	var headers []string
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		headers = append(headers, r.Header.Get("traceparent"))
	}))
	defer service.Close()
	client := http.Client{Transport: e.Transport(http.DefaultTransport)}
	plain := must.Get(sql.Open("sqlite", ":memory:"))(t)
	defer plain.Close()
	db := e.OpenDB(connector{plain.Driver()})
	defer db.Close()
	traced, span := tracing.New(e.Provider).Batch(t.Context(), tracing.CloseBatch, 1)
	for _, ctx := range []context.Context{t.Context(), traced} {
		_, err := db.ExecContext(ctx, "SELECT 1")
		expect.That(t, err == nil, "%v", err)
		request := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, service.URL, nil))(t)
		answer := must.Get(client.Do(request))(t)
		answer.Body.Close()
	}
	span.End()
	e.Close()
	for name, want := range map[string]int{tracing.CloseBatch: 1, "HTTP POST": 1, "sql.conn.exec": 1} {
		if got.spans[name] != want {
			t.Errorf("%d spans %s, want %d; all: %v", got.spans[name], name, want, got.spans)
		}
	}
	expect.That(t, len(headers) == 2 && headers[0] == "" && strings.Contains(headers[1], span.SpanContext().TraceID().String()),
		"the service got %q", headers)
	if r := got.resource; r["service.name"] != "orderclose" || r["service.version"] != "v1" || r["deployment.environment"] != "test" {
		t.Errorf("resource %v", r)
	}
}
