package payment

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"orderclose/internal/signed"
)

// question is the body of a POST, and answered the body of its answer;
// docs/http.md describes both.
type question struct {
	Orders []string `json:"orders"`
}

type answered struct {
	Answers []wireAnswer `json:"answers"`
}

type wireAnswer struct {
	OrderID string `json:"order_id"`
	Answer  Answer `json:"answer"`
}

// The largest answer that is read: so much, and so much for each order.
const (
	replyBytes      = 64 << 10
	replyBytesOrder = 1 << 10
)

// HTTPOptions for an HTTP. URL and Secrets must be set.
type HTTPOptions struct {
	URL     string   // of the service that asks the provider
	Secrets []string // that questions are signed with; several while one is being changed
	// Transport carries the questions; default: one of its own.
	Transport http.RoundTripper
}

// HTTP is a Provider that asks a service over HTTP. Make it with NewHTTP, and Close
// it.
type HTTP struct{ client *signed.Client }

// NewHTTP returns an HTTP, or says what is wrong with the options.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	client, err := signed.NewClient(signed.ClientOptions{URL: o.URL, Secrets: o.Secrets, Transport: o.Transport})
	if err != nil {
		return nil, fmt.Errorf("payment: %w", err)
	}
	return &HTTP{client}, nil
}

// Close closes idle connections. Of a nil HTTP, as NewHTTP returns with an error, it does
// nothing.
func (h *HTTP) Close() error {
	if h != nil {
		h.client.Close()
	}
	return nil
}

// Ask implements Provider. An order that the answer leaves out, or names twice
// with different answers, is Unknown.
func (h *HTTP) Ask(ctx context.Context, ids []string) ([]Answer, error) {
	var said answered
	if err := h.client.Post(ctx, question{ids}, &said, replyBytes+int64(len(ids))*replyBytesOrder); err != nil {
		return nil, err
	}
	byID := make(map[string]Answer, len(ids))
	for _, a := range said.Answers {
		if before, again := byID[a.OrderID]; again && before != a.Answer {
			a.Answer = Unknown
		}
		byID[a.OrderID] = a.Answer
	}
	answers := make([]Answer, len(ids))
	for i, id := range ids {
		if answers[i] = byID[id]; answers[i] != Paid && answers[i] != Unpaid {
			answers[i] = Unknown
		}
	}
	return answers, nil
}

// Handler is the service's side: it takes in questions that are signed with one of
// the secrets, within 5 minutes, and answers with what p says. Anybody else gets a
// 401. It returns an error if a secret is too short.
func Handler(secrets []string, p Provider) (http.Handler, error) {
	if err := signed.CheckSecrets(secrets); err != nil {
		return nil, fmt.Errorf("payment: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if !signed.Receive(w, r, secrets, time.Now(), &q) {
			return
		}
		said, err := p.Ask(r.Context(), q.Orders)
		if err == nil && len(said) != len(q.Orders) {
			err = fmt.Errorf("%d answers for %d orders", len(said), len(q.Orders))
		}
		out := answered{}
		for i, answer := range said {
			if err == nil {
				out.Answers = append(out.Answers, wireAnswer{q.Orders[i], answer})
			}
		}
		signed.Reply(w, out, err)
	}), nil
}
