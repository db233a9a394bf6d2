package pipeline_test

import (
	"context"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
)

// Of two orders, one is traced: from its checkout to the event of its close.
func TestApp_TracesTheWayOfAnOrder(t *testing.T) {
	want := map[string]string{
		"schedule": "below checkout", "close batch": "a root", "close": "below close batch, linked to schedule", "event": "below close",
	}
	for name, directly := range map[string]bool{"directly": true, "by the outbox": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
				defer servers.Close()
				cfg := must.Get(pipeline.Parse("shop.yaml", []byte("delays: {default: 1s}\nbuckets: [1s]\npartitions: 1\n")))(t)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				recorder := tracetest.NewSpanRecorder()
				provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
				app := must.Get(servers.App(ctx, pipeline.Options{Config: cfg, TracerProvider: provider}))(t)
				shop := shopdb.New(shopdb.Options{DB: servers.DB(), Dialect: producer.SQLite})
				must.Do(t, shop.PutStock(ctx, "ink", 9))
				checkout, span := provider.Tracer("shop").Start(ctx, "checkout")
				for id, ctx := range map[string]context.Context{"traced": checkout, "another": ctx} {
					must.Do(t, order(ctx, servers, shop, cfg, id, directly))
				}
				span.End()
				must.Do(t, app.Run(ctx, pipeline.Relay, pipeline.Closer, pipeline.Outbox))
				expect.Same(t, shape(recorder.Ended()), want, "spans")
				request, answer := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
				request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
				app.Handler(false).ServeHTTP(answer, request)
				for _, name := range []string{"orderclose_relay_lateness_seconds_bucket", "orderclose_close_end_to_end_lateness_seconds_bucket"} {
					if !slices.ContainsFunc(strings.Split(answer.Body.String(), "\n"), func(line string) bool {
						return strings.HasPrefix(line, name) && strings.Contains(line, `trace_id="`+span.SpanContext().TraceID().String()+`"`)
					}) {
						t.Errorf("%s has no exemplar of the checkout's trace", name)
					}
				}
			})
		})
	}
}

// order writes an order with a line, and schedules its close directly or by the outbox.
func order(ctx context.Context, servers *pipelinetest.Servers, shop *shopdb.Orders, cfg *pipeline.Config, id string, directly bool) error {
	p, err := servers.Producer(cfg)
	if err != nil {
		return err
	}
	outbox, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite})
	if err != nil {
		return err
	}
	o := p.Order(id, time.Now())
	err = shop.Checkout(ctx, func(tx *shopdb.Tx) error {
		if err := tx.CreateOrder(o, []shopdb.Item{{SKU: "ink", Quantity: 1}}); err != nil || directly {
			return err
		}
		return outbox.Add(ctx, orderclose.SQL(tx.SQL()), o)
	})
	if err != nil || !directly {
		return err
	}
	return p.Schedule(ctx, o)
}

// shape says by name where each span is, and to which span it has a link.
func shape(spans []sdk.ReadOnlySpan) map[string]string {
	names, shapes := map[trace.SpanID]string{}, map[string]string{}
	for _, s := range spans {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	for _, s := range spans {
		text := "a root"
		if s.Parent().IsValid() {
			text = "below " + names[s.Parent().SpanID()]
		}
		for _, l := range s.Links() {
			text += ", linked to " + names[l.SpanContext.SpanID()]
		}
		if shapes[s.Name()] != "" {
			text += ", and " + shapes[s.Name()]
		}
		shapes[s.Name()] = text
	}
	maps.DeleteFunc(shapes, func(name, _ string) bool { return name == "checkout" })
	return shapes
}
