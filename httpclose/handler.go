package httpclose

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/signed"
)

// Closing is what closing orders means in the service. It answers every request,
// in their order. An error that is orderclose.ErrUnavailable says that nothing can
// be closed for the moment; any other, that some order in the batch is at fault:
// the batch is then closed in halves, down to that order.
//
// It must be safe to be called twice for one order: IdempotencyKey is the same
// then. It must not close what is not due by its own clock and data.
type Closing func(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)

// CloseOrders calls c, which makes it a store for package closer as well.
func (c Closing) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return c(ctx, path, requests)
}

// Handler is the service's side: it takes in requests that are signed with one of
// the secrets, within 5 minutes, and answers with what c says. Anybody else gets
// a 401. It returns an error if a secret is too short.
func Handler(secrets []string, c Closing) (http.Handler, error) {
	if err := signed.CheckSecrets(secrets); err != nil {
		return nil, fmt.Errorf("httpclose: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q request
		if !signed.Receive(w, r, secrets, time.Now(), &q) {
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
		outcomes, err := closing.Bisect(r.Context(), c, q.Path, requests)
		signed.Reply(w, toReply(outcomes), err)
	}), nil
}

func toReply(outcomes []orderclose.Outcome) reply {
	said := reply{Verdicts: make([]wireVerdict, len(outcomes))}
	for i, o := range outcomes {
		v := wireVerdict{OrderID: o.OrderID, Verdict: o.Verdict, DueAt: writeDue(o.Due), Now: writeTime(o.At)}
		if o.Err != nil {
			v.Detail = signed.Cut(o.Err.Error(), maxDetail)
		}
		said.Verdicts[i] = v
	}
	return said
}
