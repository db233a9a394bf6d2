package closer

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/tracing"
)

// maxTraced bounds the traced orders of a transaction. The others have no span.
const maxTraced = 20

// spans are those of a transaction with traced orders.
type spans struct {
	batch  trace.Span
	orders map[int]trace.Span // by the index of the request
}

// trace begins the spans of a transaction, if an order in it is traced. The request of each traced order
// gets the trace context of the order's span, and the others get none. Otherwise trace returns nil.
func (t *transactions) trace(ctx context.Context, requests []orderclose.CloseRequest) (_ context.Context, s *spans) {
	for i := range requests {
		r := &requests[i]
		switch {
		case r.Traceparent == "":
			continue
		case s == nil:
			s = &spans{orders: map[int]trace.Span{}}
			ctx, s.batch = t.tracer.Batch(ctx, tracing.CloseBatch, len(requests))
		case len(s.orders) == maxTraced:
			r.Traceparent = ""
			continue
		}
		order, span := t.tracer.Link(ctx, tracing.Close, r.OrderID, r.Traceparent)
		s.orders[i], r.Traceparent = span, tracing.Of(order)
	}
	return ctx, s
}

// end ends the spans. err is that of the transaction.
func (s *spans) end(outcomes []orderclose.Outcome, err error) {
	if s == nil {
		return
	}
	for i, span := range s.orders {
		tracing.Verdict(span, string(outcomes[i].Verdict))
		fault := outcomes[i].Err
		if !hasVerdict(outcomes[i]) {
			fault = errors.Join(fault, err)
		}
		tracing.End(span, fault)
	}
	tracing.End(s.batch, err)
}
