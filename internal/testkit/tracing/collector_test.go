package tracing

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// collector is a running collector. It keeps the spans that it has received.
type collector struct {
	url string

	mu    sync.Mutex
	spans []ptrace.Span
}

// startCollector starts a collector that receives OTLP over HTTP. It stops at the end of the test.
func startCollector(t *testing.T) *collector {
	t.Helper()
	free := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	free.Close()
	c, kind := &collector{url: "http://" + free.Addr().String()}, component.MustNewType("kept")
	settings := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector"},
		Factories: func() (otelcol.Factories, error) {
			otlp := otlpreceiver.NewFactory()
			return otelcol.Factories{
				Receivers: map[component.Type]receiver.Factory{otlp.Type(): otlp},
				Exporters: map[component.Type]exporter.Factory{kind: exporter.NewFactory(kind, func() component.Config { return &struct{}{} },
					exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
						return c, nil
					}, component.StabilityLevelStable))},
				Telemetry: otelconftelemetry.NewFactory(),
			}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{fmt.Sprintf(`yaml:
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {kept: {}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines: {traces: {receivers: [otlp], exporters: [kept]}}`, free.Addr())},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
		DisableGracefulShutdown: true,
	}
	running := must.Get(otelcol.NewCollector(settings))(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for pauses := retry.NewBackOff(); ; retry.Sleep(ctx, pauses.NextBackOff()) {
		if answer, err := http.Get(c.url); err == nil {
			answer.Body.Close()
			return c
		}
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("the collector ended: %v", err)
		default:
		}
	}
}

// Start implements component.Component.
func (c *collector) Start(context.Context, component.Host) error { return nil }

// Shutdown implements component.Component.
func (c *collector) Shutdown(context.Context) error { return nil }

// Capabilities implements consumer.Traces.
func (c *collector) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeTraces implements consumer.Traces. It keeps copies of the spans.
func (c *collector) ConsumeTraces(_ context.Context, traces ptrace.Traces) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range traces.ResourceSpans().All() {
		for _, in := range of.ScopeSpans().All() {
			for _, s := range in.Spans().All() {
				kept := ptrace.NewSpan()
				s.CopyTo(kept)
				c.spans = append(c.spans, kept)
			}
		}
	}
	return nil
}
