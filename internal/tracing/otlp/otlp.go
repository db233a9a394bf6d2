// Package otlp exports spans over HTTP by the protocol OTLP, as the standard variables OTEL_… say. It has
// the SDK of OpenTelemetry, so that programs that embed the pipeline link their own.
package otlp

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/XSAM/otelsql"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
)

// Exporter exports spans. A nil Exporter exports none, and wraps nothing.
type Exporter struct{ Provider *sdk.TracerProvider }

// FromEnvironment returns an Exporter, or nil if the variables do not ask for one. It does not connect. The
// error names the variable with a value that is not supported. lookup finds the variables that switch on the export; the SDK reads the others itself.
// logger gets what the SDK cannot export. Call Close in the end.
func FromEnvironment(ctx context.Context, lookup func(string) (string, bool), version string, logger *slog.Logger) (*Exporter, error) {
	on, err := wanted(func(name string) string { value, _ := lookup(name); return value })
	if err != nil || !on {
		return nil, err
	}
	logger = retry.LimitLogs(logger)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("spans are not exported", "err", err) }))
	described, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "orderclose"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_…: %w", err)
	}
	return &Exporter{sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(described))}, nil
}

// wanted reports whether the variables ask for spans by OTLP over HTTP.
func wanted(get func(string) string) (bool, error) {
	exporter := get("OTEL_TRACES_EXPORTER")
	if exporter == "" && (get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "") {
		exporter = "otlp"
	}
	protocol := cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), get("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	switch {
	case exporter == "", exporter == "none", strings.EqualFold(get("OTEL_SDK_DISABLED"), "true"):
		return false, nil
	case exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q, want otlp or none", exporter)
	case protocol != "http/protobuf":
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, want http/protobuf, which collectors receive on port 4318", protocol)
	}
	return true, nil
}

// closeTimeout bounds how long the last spans are waited for.
const closeTimeout = 2 * time.Second

// Close exports the spans that wait, for at most two seconds.
func (e *Exporter) Close() {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := e.Provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

func sampled(ctx context.Context) bool { return trace.SpanContextFromContext(ctx).IsSampled() }

// Transport returns a transport that makes a span of each request with a sampled span in its context, and
// sends the trace context with it.
func (e *Exporter) Transport(t http.RoundTripper) http.RoundTripper {
	if e == nil {
		return t
	}
	return otelhttp.NewTransport(t, otelhttp.WithTracerProvider(e.Provider), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool { return sampled(r.Context()) }))
}

// maxQuery bounds the text of a statement in a span, in bytes: it may name hundreds of orders.
const maxQuery = 200

// OpenDB is sql.OpenDB for a pool that makes a span of each statement with a sampled span in its context.
// The spans hold no arguments of statements.
func (e *Exporter) OpenDB(c driver.Connector) *sql.DB {
	if e == nil {
		return sql.OpenDB(c)
	}
	return otelsql.OpenDB(c, otelsql.WithTracerProvider(e.Provider),
		otelsql.WithAttributesGetter(func(_ context.Context, _ otelsql.Method, query string, _ []driver.NamedValue) []attribute.KeyValue {
			if query == "" {
				return nil
			}
			return []attribute.KeyValue{attribute.String("db.query.text", httpcall.Cut(query, maxQuery))}
		}),
		otelsql.WithSpanOptions(otelsql.SpanOptions{
			DisableErrSkip: true, DisableQuery: true, OmitConnResetSession: true, OmitConnPrepare: true, OmitRows: true,
			SpanFilter: func(ctx context.Context, _ otelsql.Method, _ string, _ []driver.NamedValue) bool { return sampled(ctx) },
		}))
}
