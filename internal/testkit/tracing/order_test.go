package tracing

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/tracing/otlp"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
)

// From the spans alone, one can go from the checkout of an order to the event of its close.
func TestCollector_FindsTheWholeWayOfAnOrder(t *testing.T) {
	collector := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
	exporter := must.Get(otlp.FromEnvironment(t.Context(), os.LookupEnv, "test", slog.Default()))(t)
	servers := must.Get(pipelinetest.Start(pipelinetest.Options{}))(t)
	defer servers.Close()
	cfg := must.Get(pipeline.Parse("shop.yaml", []byte("delays: {default: 1s}\nbuckets: [1s]\npartitions: 1\n")))(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	app := must.Get(servers.App(ctx, pipeline.Options{
		Config: cfg, TracerProvider: exporter.Provider,
	}))(t)
	checkout, span := exporter.Provider.Tracer("shop").Start(ctx, "checkout")
	must.Do(t, addOrder(checkout, servers, cfg))
	span.End()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, pipeline.Relay, pipeline.Closer, pipeline.Outbox) }()
	must.Do(t, eventreader.Read(ctx, app, eventreader.Options[orderclose.OrderClosed]{
		Group: "warehouse", Handle: func(context.Context, []eventreader.Event[orderclose.OrderClosed]) error { stop(); return nil },
	}))
	must.Do(t, <-ended)
	exporter.Close()
	way := []string{"checkout", "schedule", "close", "event"}
	spans := map[string]ptrace.Span{}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	for _, s := range collector.spans {
		spans[s.Name()] = s
	}
	for i, name := range way {
		s, found := spans[name]
		if !found {
			t.Fatalf("the collector has no span %s, of %d", name, len(collector.spans))
		}
		if i == 0 {
			continue
		}
		before := spans[way[i-1]].SpanID()
		if linked := s.Links().Len() == 1 && s.Links().At(0).SpanID() == before; s.ParentSpanID() != before && !linked {
			t.Errorf("%s leads to no %s", name, way[i-1])
		}
		if id, _ := s.Attributes().Get("orderclose.order_id"); id.Str() != "order-17" {
			t.Errorf("%s is of the order %q", name, id.Str())
		}
	}
	if v, found := spans["close"].Attributes().Get("orderclose.verdict"); !found || v.Str() != "closed" {
		t.Errorf("the verdict is %q", v.Str())
	}
}

// addOrder writes an order with a line, and its outbox row, in one transaction.
func addOrder(ctx context.Context, servers *pipelinetest.Servers, cfg *pipeline.Config) error {
	p, err := servers.Producer(cfg)
	if err != nil {
		return err
	}
	outbox, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite})
	if err != nil {
		return err
	}
	shop := shopdb.New(shopdb.Options{DB: servers.DB(), Dialect: producer.SQLite})
	if err := shop.PutStock(ctx, "ink", 9); err != nil {
		return err
	}
	o := p.Order("order-17", time.Now())
	return shop.Checkout(ctx, func(tx *shopdb.Tx) error {
		if err := tx.CreateOrder(o, []shopdb.Item{{SKU: "ink", Quantity: 1}}); err != nil {
			return err
		}
		return outbox.Add(ctx, orderclose.SQL(tx.SQL()), o)
	})
}
