package payment

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/signature"
)

// question is the body of a POST request, and answered the body of the response.
// docs/http.md describes both.
type question struct {
	Action string   `json:"action,omitempty"` // empty: actionAsk
	Orders []string `json:"orders"`
}

// Values of question.Action.
const (
	actionAsk    = "ask"
	actionCancel = "cancel"
)

type answered struct {
	Answers []wireAnswer `json:"answers"`
}

type wireAnswer struct {
	OrderID string `json:"order_id"`
	Answer  Answer `json:"answer"`
}

// Limits of the size of a response: a base size, and a size for each order.
const (
	replyBytes      = 64 << 10
	replyBytesOrder = 1 << 10
)

// HTTPOptions configure an HTTP. URL and Secrets are required.
type HTTPOptions struct {
	URL     string   // URL of the service that asks the provider
	Secrets []string // secrets that sign questions; several while one is being replaced
	// Transport sends the questions. Default: a transport of its own.
	Transport http.RoundTripper
}

// HTTP is a Provider that asks a service over HTTP. Create it with NewHTTP, and call
// Close in the end.
type HTTP struct{ client *httpcall.Client }

// NewHTTP returns an HTTP, or an error if the options are invalid.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	client, err := httpcall.NewClient(o.URL, o.Secrets, o.Transport)
	if err != nil {
		return nil, fmt.Errorf("payment: %w", err)
	}
	return &HTTP{client}, nil
}

// Close closes idle connections. On a nil HTTP, which NewHTTP returns with an error,
// it does nothing.
func (h *HTTP) Close() error {
	if h != nil {
		h.client.Close()
	}
	return nil
}

// Ask implements Provider. An order that the response leaves out, or that it contains
// twice with different answers, is Unknown.
func (h *HTTP) Ask(ctx context.Context, ids []string) ([]Answer, error) {
	return h.post(ctx, question{Orders: ids})
}

// Canceler returns the same service as a Canceler. The service must know the action cancel.
func (h *HTTP) Canceler() Canceler { return httpCanceler{h} }

type httpCanceler struct{ *HTTP }

// Cancel implements Canceler. The answers are read as those of Ask.
func (h httpCanceler) Cancel(ctx context.Context, ids []string) ([]Answer, error) {
	return h.post(ctx, question{Action: actionCancel, Orders: ids})
}

func (h *HTTP) post(ctx context.Context, q question) ([]Answer, error) {
	ids := q.Orders
	var got answered
	if err := h.client.Post(ctx, q, &got, replyBytes+int64(len(ids))*replyBytesOrder); err != nil {
		return nil, err
	}
	byID := make(map[string]Answer, len(ids))
	for _, a := range got.Answers {
		if before, again := byID[a.OrderID]; again && before != a.Answer {
			a.Answer = Unknown
		}
		byID[a.OrderID] = a.Answer
	}
	answers := make([]Answer, len(ids))
	for i, id := range ids {
		if answers[i] = byID[id]; !slices.Contains([]Answer{Paid, Unpaid, Cancelled}, answers[i]) {
			answers[i] = Unknown
		}
	}
	return answers, nil
}

// Handler returns the HTTP handler of the service. It accepts POST requests that are
// signed with one of the secrets within the last 5 minutes, and responds with the
// answers of p. It returns an error if a secret is invalid. The other statuses are:
//
//	400   the request is incomplete or is not JSON
//	401   the signature is missing, wrong or too old
//	405   the method is not POST
//	413   the request is too large
//	503   p returned an error that wraps orderclose.ErrUnavailable, or too many requests are received at once
//	500   p returned another error, or a wrong number of answers
//	501   the action is unknown, or it is cancel and p is no Canceler
func Handler(secrets []string, p Provider) (http.Handler, error) {
	keys, err := signature.Parse(secrets)
	if err != nil {
		return nil, fmt.Errorf("payment: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if !httpcall.Receive(w, r, keys, &q) {
			return
		}
		call := p.Ask
		if c, ok := p.(Canceler); ok && q.Action == actionCancel {
			call = c.Cancel
		} else if q.Action != "" && q.Action != actionAsk {
			http.Error(w, fmt.Sprintf("this service does not know the action %.20q: implement it, or remove closer.payment.cancel from topics.yaml", q.Action),
				http.StatusNotImplemented)
			return
		}
		got, err := call(r.Context(), q.Orders)
		if err == nil && len(got) != len(q.Orders) {
			err = fmt.Errorf("the provider returned %d answers for %d orders", len(got), len(q.Orders))
		}
		out := answered{}
		for i, answer := range got {
			if err == nil {
				out.Answers = append(out.Answers, wireAnswer{q.Orders[i], answer})
			}
		}
		httpcall.Reply(w, out, err)
	}), nil
}
