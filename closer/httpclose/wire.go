package httpclose

import (
	"strconv"
	"time"

	"github.com/orderclose/orderclose"
)

// request is the body of a POST request.
type request struct {
	Path   orderclose.Path `json:"path"`
	Orders []wireOrder     `json:"orders"`
}

// wireOrder is one order to close. Unknown times are omitted.
type wireOrder struct {
	OrderID        string `json:"order_id"`
	DueAt          string `json:"due_at,omitempty"`
	CreatedAt      string `json:"created_at,omitempty"`
	Attempt        int    `json:"attempt"`
	IdempotencyKey string `json:"idempotency_key"`
}

// reply is the body of the response.
type reply struct {
	Verdicts []wireVerdict `json:"verdicts"`
}

// wireVerdict is the service's verdict on one order.
type wireVerdict struct {
	OrderID string             `json:"order_id"`
	Verdict orderclose.Verdict `json:"verdict"`
	DueAt   string             `json:"due_at,omitempty"`
	Now     string             `json:"now,omitempty"`
	Detail  string             `json:"detail,omitempty"`
}

// IdempotencyKey returns the key for the close of an order at its due time. It is the
// same for each attempt, and changes if the due time changes.
func IdempotencyKey(r orderclose.CloseRequest) string {
	due := int64(0)
	if !r.Due.IsZero() {
		due = orderclose.CeilMilli(r.Due).UnixMilli()
	}
	return "close/" + strconv.FormatInt(due, 10) + "/" + r.OrderID
}

func toWire(r orderclose.CloseRequest) wireOrder {
	return wireOrder{r.OrderID, writeDue(r.Due), writeTime(r.CreatedAt), r.Attempt, IdempotencyKey(r)}
}

func (o wireOrder) request() (orderclose.CloseRequest, error) {
	due, err := readTime(o.DueAt)
	if err != nil {
		return orderclose.CloseRequest{}, err
	}
	created, err := readTime(o.CreatedAt)
	return orderclose.CloseRequest{OrderID: o.OrderID, Attempt: o.Attempt, CreatedAt: created, Due: due}, err
}

// writeTime formats t as RFC 3339 in UTC with milliseconds, or as "" if t is zero.
func writeTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// writeDue formats a due time, rounded up so that it is never early.
func writeDue(t time.Time) string { return writeTime(orderclose.CeilMilli(t)) }

// readTime parses an RFC 3339 time; "" is the zero time.
func readTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, err
	}
	return t.UTC(), nil
}
