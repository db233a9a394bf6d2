package tracing

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	header    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestSampled_OnlyAValidTraceparentOfASampledTrace(t *testing.T) {
	on := New(sdk.NewTracerProvider())
	for given, want := range map[string]string{
		header: header, unsampled: "", "": "", "00-ab-cd-01": "", header + "x": "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
	} {
		if got := on.Sampled(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
		if got := (Tracer{}).Sampled(given); got != "" {
			t.Errorf("%q is %q although no spans are made", given, got)
		}
	}
	if id := TraceID(header); id != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the trace id is %s", id)
	}
}

// The text is that of OpenTelemetry's own propagator.
func TestOf_IsTheTraceparentOfASampledSpan(t *testing.T) {
	ctx, span := New(sdk.NewTracerProvider()).Batch(t.Context(), CloseBatch, 1)
	defer span.End()
	want := propagation.MapCarrier{}
	if (propagation.TraceContext{}).Inject(ctx, want); Of(ctx) != want["traceparent"] || Of(ctx) == "" {
		t.Errorf("%q, want %q", Of(ctx), want["traceparent"])
	}
	if got := Of(trace.ContextWithRemoteSpanContext(t.Context(), parse(unsampled))); got != "" {
		t.Errorf("of a span that is not sampled: %q", got)
	}
}

// A shop that is not traced, and a process without tracing, pay nothing.
func TestTracer_AllocatesNothingWithoutASpan(t *testing.T) {
	m, ctx := wire.Message{Key: []byte("o"), Headers: []wire.Header{{Key: wire.HeaderTraceparent, Value: []byte(header)}}}, t.Context()
	var off Tracer
	if n := testing.AllocsPerRun(100, func() {
		called, span := Child(ctx, Schedule, "o")
		End(span, nil)
		_, span = off.Continue(called, Event, "o", off.Parent(&m))
		End(span, nil)
		if Of(called) != "" || off.Sampled(header) != "" {
			t.Error("a span was begun")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestChild_IsOfTheCallersProvider(t *testing.T) {
	p := sdk.NewTracerProvider()
	parent, caller := p.Tracer("shop").Start(t.Context(), "checkout")
	defer caller.End()
	ctx, span := Child(parent, Schedule, "o")
	defer span.End()
	if got := trace.SpanContextFromContext(ctx); !span.IsRecording() || got.TraceID() != caller.SpanContext().TraceID() ||
		got.SpanID() == caller.SpanContext().SpanID() {
		t.Errorf("the span is %v", got)
	}
	// A trace context without a span of this process goes on unchanged.
	if ctx, _ := Child(trace.ContextWithRemoteSpanContext(context.Background(), parse(header)), Schedule, "o"); Of(ctx) != header {
		t.Errorf("%q, want %q", Of(ctx), header)
	}
}
