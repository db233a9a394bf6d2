package checkout

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// Problem is an error in the format of RFC 9457, with a hint.
type Problem struct {
	Type     string `json:"type"`     // /problems/ and a word, for programs
	Title    string `json:"title"`    // what is wrong
	Status   int    `json:"status"`   // HTTP status
	Detail   string `json:"detail"`   // what failed in this request
	Instance string `json:"instance"` // the path
	Hint     string `json:"hint"`     // what the caller can do
	Order    *Order `json:"order,omitempty"`
}

// badRequest is a request that is not valid.
type badRequest struct {
	status       int
	detail, hint string
}

func (b *badRequest) Error() string { return b.detail }

// problem converts an error to a problem. Pure.
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
		set(http.StatusConflict, "not_now", "the order's state does not allow this", refusal.hint())
		p.Order = &refusal.Order
	case errors.As(err, &bad):
		set(bad.status, "bad_request", "the request is not valid", bad.hint)
	case errors.As(err, &tooLarge):
		set(http.StatusRequestEntityTooLarge, "too_large", "the body is too large", fmt.Sprintf("send at most %d bytes", tooLarge.Limit))
	case errors.Is(err, shopdb.ErrNoOrder):
		set(http.StatusNotFound, "no_order", "the order does not exist", "check the id; POST /orders creates an order")
	case errors.Is(err, ErrNoPayment):
		set(http.StatusNotFound, "no_payment", "the payment does not exist", "start a payment with POST /orders/{id}/payments")
	case errors.Is(err, ErrOtherRequest):
		set(http.StatusUnprocessableEntity, "other_request", "the Idempotency-Key was used for another request", "use a new key for each request")
	case errors.Is(err, shopdb.ErrOutOfStock):
		set(http.StatusConflict, "out_of_stock", "not enough in stock", "order less, or PUT /stock/{sku}")
	case errors.Is(err, ErrFewPoints):
		set(http.StatusConflict, "few_points", "the customer has too few points", "spend less; GET /customers/{id} shows them")
	case errors.Is(err, ErrNoCoupons):
		set(http.StatusConflict, "no_coupons", "the shop takes no coupons", "put ReturnCoupons into orders.on_close of topics.yaml; the README says how")
	case errors.Is(err, ErrCoupon):
		set(http.StatusConflict, "coupon", "the coupon cannot be used", "GET /coupons/{id} shows its customer, and the order that has used it")
	case errors.Is(err, shopdb.ErrDuplicateOrder):
		set(http.StatusConflict, "order_exists", "an order with this id exists", "omit the id, or send the Idempotency-Key of the first request")
	case errors.Is(err, shopdb.ErrBadItem), errors.As(err, &order):
		set(http.StatusBadRequest, "bad_order", "the order is not valid", "fix what the detail names")
	case errors.Is(err, orderclose.ErrUnavailable), errors.Is(err, orderclose.ErrContended):
		set(http.StatusServiceUnavailable, "unavailable", "the database does not answer", "send the same request again, with the same Idempotency-Key")
		p.Detail = "the result of the request is unknown" // must not show the names of servers
	default:
		set(http.StatusInternalServerError, "failed", "internal error", "see the shop's log")
		p.Detail = "the request failed"
	}
	return p
}

func (r *Refusal) hint() string {
	switch {
	case r.Order.Status == Closing:
		return "the order is past due and will be closed; try again in a moment"
	case r.Order.Status == Closed && r.Event == Pay:
		return "the order was not paid in time; create a new order"
	case r.Order.Status.Final():
		return "the order has ended and cannot change any more"
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

// fail answers with the problem of an error.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem(err, r.URL.Path)
	if p.Status >= http.StatusInternalServerError {
		h.shop.o.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		if p.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the client has gone
}
