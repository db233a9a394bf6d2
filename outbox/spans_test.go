package outbox

import (
	"errors"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

const sampledTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestRowBatch_ARecordCarriesTheTraceOfItsPublication(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer, b := tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))), &rowBatch{}
	route := func(id int64, trace string) wire.Message {
		_, m, err := Events("events").route(wire.OutboxRow{ID: id, OrderID: "o", Payload: []byte("{}"), Traceparent: trace}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Offset = id
		b.trace(tracer, tracing.Event, &m)
		return m
	}
	published, failed, untraced := route(1, sampledTrace), route(2, sampledTrace), route(3, "")
	b.ack([]wire.RawRecord{published.Raw(), untraced.Raw()})
	b.err = errors.New("Kafka is away")
	b.endTraces()
	_, has := untraced.Header(wire.HeaderTraceparent)
	expect.That(t, !has, "the event of an order that is not traced has a trace context")
	spans := recorder.Ended()
	must.That(t, len(spans) == 2, "%d spans, want 2", len(spans))
	for i, m := range []wire.Message{published, failed} {
		header, _ := m.Header(wire.HeaderTraceparent)
		s := spans[i]
		want := "00-" + tracing.TraceID(sampledTrace) + "-" + s.SpanContext().SpanID().String() + "-01"
		if header != want || s.Parent().SpanID().String() != "b7ad6b7169203331" || (s.Status().Description == "Kafka is away") != (i == 1) {
			t.Errorf("row %d: the record has %q, want %q; the span is below %v, with the status %q", i+1, header, want, s.Parent().SpanID(), s.Status().Description)
		}
	}
}

func TestRowBatch_WithoutTracingAllocatesNothing(t *testing.T) {
	never := tracing.New(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())))
	m, b := wire.Message{Key: []byte(strings.Repeat("o", 64)), Headers: []wire.Header{{Key: wire.HeaderTraceparent, Value: []byte(sampledTrace)}}}, &rowBatch{}
	if n := testing.AllocsPerRun(100, func() {
		b.trace(tracing.Tracer{}, tracing.Event, &m)
		b.endTraces()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	b.trace(never, tracing.Event, &m)
	header, _ := m.Header(wire.HeaderTraceparent)
	expect.That(t, header == sampledTrace, "the record has %q, want what the row has", header)
}
