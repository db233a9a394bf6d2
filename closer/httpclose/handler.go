package httpclose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/signature"
)

// Closing closes orders in the service. It returns one outcome for each request, in
// the order of the requests. An error that wraps orderclose.ErrUnavailable means that
// nothing can be closed at the moment. Any other error means that an order of the
// batch is at fault; Handler then halves the batch down to that order. So does a panic, whose
// stack goes to the default logger of log/slog.
//
// Closing may be called more than once for an order, with the same IdempotencyKey,
// and must be idempotent. It must not close an order that is not due by the service's
// own clock and data.
type Closing func(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)

// CloseOrders calls c, so that a Closing is also a store for package closer.
func (c Closing) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return c(ctx, path, requests)
}

// Handler returns the HTTP handler of the service. It accepts POST requests that are
// signed with one of the secrets within the last 5 minutes, and answers with the
// outcomes of c. It returns an error if a secret is invalid. The other statuses are:
//
//	400   the request is incomplete, is not JSON, or has an invalid time
//	401   the signature is missing, wrong or too old
//	405   the method is not POST
//	413   the request is too large
//	503   c returned an error that wraps orderclose.ErrUnavailable, or too many requests are received at once
//	500   any other error that is not the fault of an order
func Handler(secrets []string, c Closing) (http.Handler, error) {
	keys, err := signature.Parse(secrets)
	if err != nil {
		return nil, fmt.Errorf("httpclose: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q request
		if !httpcall.Receive(w, r, keys, &q) {
			return
		}
		requests := make([]orderclose.CloseRequest, len(q.Orders))
		for i, o := range q.Orders {
			var err error
			if requests[i], err = o.request(); err != nil {
				http.Error(w, fmt.Sprintf("order %q: %v", o.OrderID, err), http.StatusBadRequest)
				return
			}
		}
		outcomes, err := bisect.Bisect(r.Context(), c, q.Path, requests)
		for _, o := range outcomes {
			if p, panicked := errors.AsType[*retry.PanicError](o.Err); panicked {
				slog.Error("closing an order panicked", "order", o.OrderID, "err", p, "stack", p.Stack)
			}
		}
		httpcall.Reply(w, toReply(outcomes), err)
	}), nil
}

func toReply(outcomes []orderclose.Outcome) reply {
	answer := reply{Verdicts: make([]wireVerdict, len(outcomes))}
	for i, o := range outcomes {
		v := wireVerdict{OrderID: o.OrderID, Verdict: o.Verdict, DueAt: writeDue(o.Due), Now: writeTime(o.At)}
		if o.Err != nil {
			v.Detail = httpcall.Cut(o.Err.Error(), maxDetail)
		}
		answer.Verdicts[i] = v
	}
	return answer
}
