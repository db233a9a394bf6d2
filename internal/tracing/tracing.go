// Package tracing makes the spans of traced orders, with the API of OpenTelemetry only. Package otlp
// below it has the SDK and the exporter.
//
// An order is traced if its checkout has a sampled span. Its records and its event carry the W3C trace
// context of the span before, in the header traceparent. No part begins a trace for an order whose
// record has no such header. docs/tracing.md shows the spans of an order.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose/internal/wire"
)

// The names of the spans.
const (
	Schedule   = "schedule"    // the record of an order goes to Kafka
	CloseBatch = "close batch" // a transaction with at least one traced order
	Close      = "close"       // an order in it
	Event      = "event"       // the event of a closed order goes to Kafka
)

var kinds = map[string]trace.SpanKind{
	Schedule: trace.SpanKindProducer, CloseBatch: trace.SpanKindInternal, Close: trace.SpanKindConsumer,
	Event: trace.SpanKindProducer,
}

const scope = "github.com/orderclose/orderclose"

// Attributes of spans.
const (
	orderID = attribute.Key("orderclose.order_id")
	verdict = attribute.Key("orderclose.verdict")
)

// Tracer makes spans. The zero value makes none, and its methods do not allocate.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer. If p is nil, it makes no spans.
func New(p trace.TracerProvider) Tracer {
	if p == nil {
		return Tracer{}
	}
	return Tracer{p.Tracer(scope)}
}

// Sampled returns the traceparent of a record if the Tracer makes spans and the trace is sampled, and
// "" otherwise.
func (t Tracer) Sampled(traceparent string) string {
	if t.tracer == nil {
		return ""
	}
	return Sampled(traceparent)
}

// Sampled returns a traceparent if its trace is sampled, and "" otherwise.
func Sampled(traceparent string) string {
	if traceparent == "" || !parse(traceparent).IsSampled() {
		return ""
	}
	return traceparent
}

// Parent is Sampled for the header of a message.
func (t Tracer) Parent(m *wire.Message) string {
	if t.tracer == nil {
		return ""
	}
	traceparent, _ := m.Header(wire.HeaderTraceparent)
	return t.Sampled(traceparent)
}

// parse returns the span context of a traceparent; an invalid one if it cannot be parsed.
func parse(traceparent string) trace.SpanContext {
	carrier := propagation.MapCarrier{wire.HeaderTraceparent: traceparent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// Of returns the traceparent of the span in ctx, or "" if there is none or it is not sampled.
func Of(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	if !s.IsSampled() || !s.IsValid() {
		return ""
	}
	return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-" + s.TraceFlags().String()
}

// TraceID returns the trace id of a traceparent that Sampled or Of returned.
func TraceID(traceparent string) string { return traceparent[3:35] }

// Child begins a span below the caller's span in ctx, with the TracerProvider of that span. If that
// span is not sampled, Child begins none.
func Child(ctx context.Context, name, order string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, none
	}
	return New(parent.TracerProvider()).start(ctx, name, orderID.String(order))
}

// Continue begins a span in the trace of parent, which Sampled returned, with a link to the span in
// ctx. If parent is "", Continue begins none.
func (t Tracer) Continue(ctx context.Context, name, order, parent string) (context.Context, trace.Span) {
	if parent == "" {
		return ctx, none
	}
	return t.start(trace.ContextWithRemoteSpanContext(ctx, parse(parent)), name, orderID.String(order), trace.SpanContextFromContext(ctx))
}

// Link begins a span below the span in ctx, with a link to a span of another trace, which Sampled returned.
func (t Tracer) Link(ctx context.Context, name, order, to string) (context.Context, trace.Span) {
	return t.start(ctx, name, orderID.String(order), parse(to))
}

// Batch begins the span of several orders.
func (t Tracer) Batch(ctx context.Context, name string, orders int) (context.Context, trace.Span) {
	return t.start(ctx, name, attribute.Int("orderclose.orders", orders))
}

func (t Tracer) start(ctx context.Context, name string, a attribute.KeyValue, links ...trace.SpanContext) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithSpanKind(kinds[name]), trace.WithAttributes(a)}
	for _, to := range links {
		if to.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: to}))
		}
	}
	return t.tracer.Start(ctx, name, options...)
}

// none is a span that records nothing.
var none = trace.SpanFromContext(context.Background())

// End ends a span, with an error unless err is nil.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Verdict notes the verdict of the order of a span.
func Verdict(span trace.Span, of string) { span.SetAttributes(verdict.String(of)) }
