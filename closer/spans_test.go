package closer

import (
	"errors"
	"fmt"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/tracing"
)

const sampledTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTransaction_HasASpanOfEachTracedOrderUpToTwenty(t *testing.T) {
	for _, continues := range []bool{false, true} {
		recorder := tracetest.NewSpanRecorder()
		s := &transactions{tracer: tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))), continueTrace: continues}
		requests, outcomes := make([]orderclose.CloseRequest, 30), make([]orderclose.Outcome, 30)
		for i := range requests {
			requests[i].OrderID, outcomes[i].Verdict = fmt.Sprint(i), orderclose.Closed
			if i >= 5 {
				requests[i].Traceparent = sampledTrace
			}
		}
		outcomes[5] = orderclose.Outcome{}
		ctx, traced := s.trace(t.Context(), requests)
		batch := trace.SpanContextFromContext(ctx)
		traced.end(outcomes, errors.New("the store failed"))
		if n := len(recorder.Ended()); n != 1+maxTraced {
			t.Errorf("%d spans, want %d and one of the transaction", n, maxTraced)
		}
		for i, r := range requests {
			if (r.Traceparent != "") != (i >= 5 && i < 5+maxTraced) || r.Traceparent == sampledTrace {
				t.Errorf("order %d: the store gets %q", i, r.Traceparent)
			}
		}
		failed := 0
		for _, span := range recorder.Ended() {
			if span.Status().Description == "the store failed" {
				failed++
			}
			if span.Name() != tracing.Close {
				continue
			}
			above, linked := batch.TraceID().String(), tracing.TraceID(sampledTrace)
			if continues {
				above, linked = linked, above
			}
			if links := span.Links(); span.SpanContext().TraceID().String() != above || len(links) != 1 || links[0].SpanContext.TraceID().String() != linked {
				t.Errorf("continued: %v; the span is %v with the links %v", continues, span.SpanContext(), links)
			}
		}
		if failed != 2 {
			t.Errorf("%d spans have the error of the transaction, want its own and that of the order without a verdict", failed)
		}
	}
}

// The store gets no trace context of an order whose trace is not made here.
func TestTransaction_WithoutTracedOrdersAllocatesNothing(t *testing.T) {
	s, requests, outcomes := &transactions{}, make([]orderclose.CloseRequest, 3), make([]orderclose.Outcome, 3)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		for i := range requests {
			requests[i].Traceparent = s.tracer.Sampled(sampledTrace)
		}
		_, traced := s.trace(ctx, requests)
		traced.end(outcomes, nil)
	}); n > 0 || requests[0].Traceparent != "" {
		t.Errorf("%v allocations, the store gets %q", n, requests[0].Traceparent)
	}
}
