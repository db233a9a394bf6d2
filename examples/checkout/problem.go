package checkout

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"orderclose"
	"orderclose/internal/store"
)

// Problem is an error as the API tells it: RFC 9457, with what to do next.
type Problem struct {
	Type     string `json:"type"`     // /problems/ and a word for programs
	Title    string `json:"title"`    // what is wrong
	Status   int    `json:"status"`   // of HTTP
	Detail   string `json:"detail"`   // what failed, for this request
	Instance string `json:"instance"` // where
	Hint     string `json:"hint"`     // what to do
	Order    *Order `json:"order,omitempty"`
}

// badRequest is a request that cannot be understood.
type badRequest struct {
	status       int
	detail, hint string
}

func (b *badRequest) Error() string { return b.detail }

// problem says what an error means to whoever has asked. Pure.
func problem(err error, path string) Problem {
	var refusal *Refusal
	var bad *badRequest
	var order *orderclose.OrderError
	var tooLarge *http.MaxBytesError
	p := Problem{Instance: path, Detail: err.Error()}
	set := func(status int, word, title, hint string) {
		p.Status, p.Type, p.Title, p.Hint = status, "/problems/"+word, title, hint
	}
	switch {
	case errors.As(err, &refusal):
		set(http.StatusConflict, "not_now", "the order's state does not allow it", refusal.hint())
		p.Order = &refusal.Order
	case errors.As(err, &bad):
		set(bad.status, "bad_request", "the request cannot be understood", bad.hint)
	case errors.As(err, &tooLarge):
		set(http.StatusRequestEntityTooLarge, "too_large", "the body is too large", fmt.Sprintf("send at most %d bytes", tooLarge.Limit))
	case errors.Is(err, store.ErrNoOrder):
		set(http.StatusNotFound, "no_order", "there is no such order", "look at the id; POST /orders makes one")
	case errors.Is(err, ErrNoPayment):
		set(http.StatusNotFound, "no_payment", "no such payment was started", "start one with POST /orders/{id}/payments")
	case errors.Is(err, ErrOtherRequest):
		set(http.StatusUnprocessableEntity, "other_request", "the Idempotency-Key was used for another request", "give each request a key of its own")
	case errors.Is(err, store.ErrOutOfStock):
		set(http.StatusConflict, "out_of_stock", "there is not enough in stock", "order less, or PUT /stock/{sku}")
	case errors.Is(err, ErrFewPoints):
		set(http.StatusConflict, "few_points", "the customer has fewer points", "spend less; GET /customers/{id} shows them")
	case errors.Is(err, store.ErrDuplicateOrder):
		set(http.StatusConflict, "order_exists", "an order of that id exists", "leave the id out, or send the Idempotency-Key of the first request")
	case errors.Is(err, store.ErrBadItem), errors.As(err, &order):
		set(http.StatusBadRequest, "bad_order", "there can be no such order", "mend what the detail names")
	case errors.Is(err, orderclose.ErrUnavailable), errors.Is(err, orderclose.ErrContended):
		set(http.StatusServiceUnavailable, "unavailable", "the database does not answer", "send the same request again, with the same Idempotency-Key")
		p.Detail = "nothing is known of what became of it" // names of servers are nobody's business
	default:
		set(http.StatusInternalServerError, "failed", "something is wrong here", "the shop's log says what")
		p.Detail = "the request failed"
	}
	return p
}

func (r *Refusal) hint() string {
	switch {
	case r.Order.Status == Closing:
		return "it is past due and about to be closed; ask again in a moment"
	case r.Order.Status == Closed && r.Event == Pay:
		return "it was not paid in time; make a new order"
	case r.Order.Status.Final():
		return "nothing can be done to it any more"
	}
	possible := "nothing"
	for _, e := range []Event{Pay, Cancel, Ship, Confirm} {
		if _, ok := Next(r.Order.Status, e); ok {
			if possible == "nothing" {
				possible = string(e)
			} else {
				possible += " or " + string(e)
			}
		}
	}
	return "possible now: " + possible
}

// fail answers with the problem that an error is.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem(err, r.URL.Path)
	if p.Status >= http.StatusInternalServerError {
		h.shop.o.Logger.Error("a request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		if p.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // whoever asked has gone
}
