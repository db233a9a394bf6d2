package checkout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/orderclose/orderclose"
)

// Limits of a request.
const (
	maxBody        = 64 << 10        // bytes of the body
	maxLines       = 100             // lines of a basket
	maxQuantity    = 1_000_000       // pieces of a line
	maxKey         = 200             // bytes of HeaderKey
	requestTimeout = 8 * time.Second // bounds the work for a request, after its header was read
	stopTimeout    = 5 * time.Second // bounds how long requests may take after Serve's context ended
)

// HeaderKey identifies a request: a repeat with the same key has no second effect and gets the
// same answer. HeaderSignature is the signature of the payment provider.
const (
	HeaderKey       = "Idempotency-Key"
	HeaderSignature = "X-Signature"
	// HeaderRepeated is set to true if the answer is that of an earlier request.
	HeaderRepeated = "Idempotent-Replay"
)

type handler struct {
	shop *Shop
	mux  *http.ServeMux
}

// Handler serves the shop:
//
//	POST /orders                  create an order                           201
//	GET  /orders/{id}             its status, due time and seconds left
//	GET  /orders/{id}/page        a page that counts down
//	POST /orders/{id}/payments    start a payment                          201
//	POST /payments/callback       the provider confirms a payment
//	POST /orders/{id}/cancel      also ship and confirm
//	GET  /customers/{id}          points and notifications
//	PUT  /coupons/{id}            give a customer a coupon; GET shows it
//	PUT  /stock/{sku}             set the available quantity; GET shows it
//	GET  /-/healthy               the process is alive
//
// An event that the order's state does not allow is answered with 409 and the order, and changes
// nothing. All errors are problem JSON.
func (s *Shop) Handler() http.Handler {
	h := &handler{s, http.NewServeMux()}
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /orders":               h.create,
		"GET /orders/{id}":           h.get,
		"GET /orders/{id}/page":      h.page,
		"POST /orders/{id}/payments": h.startPayment,
		"POST /payments/callback":    h.callback,
		"POST /orders/{id}/cancel":   h.event(Cancel),
		"POST /orders/{id}/ship":     h.event(Ship),
		"POST /orders/{id}/confirm":  h.event(Confirm),
		"GET /customers/{id}":        h.customer,
		"GET /coupons/{id}":          h.coupon,
		"PUT /coupons/{id}":          h.putCoupon,
		"GET /stock/{sku}":           h.stock,
		"PUT /stock/{sku}":           h.putStock,
		"GET /-/healthy":             h.healthy,
	} {
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				h.fail(w, r, err)
			}
		})
	}
	return h
}

// ServeHTTP implements http.Handler. Each request has a deadline and a limit of its body. A request
// that matches no pattern is answered with a problem too.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := h.mux.Handler(r); pattern == "" {
		h.noRoute(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	h.mux.ServeHTTP(w, r.WithContext(ctx))
}

// noRoute answers a request that matches no pattern: with 405 if another method matches.
func (h *handler) noRoute(w http.ResponseWriter, r *http.Request) {
	probe := &probe{header: http.Header{}}
	h.mux.ServeHTTP(probe, r)
	p := Problem{Type: "/problems/nowhere", Title: "no such path", Status: http.StatusNotFound,
		Detail: r.Method + " " + r.URL.Path, Instance: r.URL.Path, Hint: "the README lists the paths"}
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		p.Type, p.Title, p.Status, p.Hint = "/problems/method", "method not allowed", http.StatusMethodNotAllowed, "use "+allow
	}
	writeProblem(w, p)
}

// probe is a ResponseWriter that drops the body.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(status int)      { p.status = status }

func (h *handler) create(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var b Basket
	if err := decode(body, &b); err != nil {
		return err
	}
	if err := checkBasket(b); err != nil {
		return err
	}
	request, err := requestOf(r, body)
	if err != nil {
		return err
	}
	reply, err := h.shop.Create(r.Context(), request, b)
	return answer(w, reply, err)
}

// checkBasket returns an error for a basket that cannot become an order. Pure.
func checkBasket(b Basket) error {
	bad := func(format string, args ...any) error {
		return &badRequest{http.StatusBadRequest, fmt.Sprintf(format, args...), "fix the field that the detail names"}
	}
	switch {
	case b.ID != "" && orderclose.ValidateID(b.ID) != nil:
		return bad("id: %v", orderclose.ValidateID(b.ID))
	case b.Customer == "" || orderclose.ValidateID(b.Customer) != nil:
		return bad("customer is %.80q: want 1 to %d bytes of text", b.Customer, orderclose.MaxIDBytes)
	case len(b.Category) > orderclose.MaxIDBytes || b.Category != "" && orderclose.ValidateID(b.Category) != nil:
		return bad("category is %.80q: want at most %d bytes of text", b.Category, orderclose.MaxIDBytes)
	case len(b.Items) == 0 || len(b.Items) > maxLines:
		return bad("items has %d lines: want 1 to %d", len(b.Items), maxLines)
	case b.Coupon != "" && orderclose.ValidateID(b.Coupon) != nil:
		return bad("coupon is %.80q: want at most %d bytes of text", b.Coupon, orderclose.MaxIDBytes)
	case b.Points < 0:
		return bad("points is %d: want 0 or more", b.Points)
	}
	for i, l := range b.Items {
		if orderclose.ValidateID(l.SKU) != nil || l.Quantity < 1 || l.Quantity > maxQuantity {
			return bad("items[%d] is %d of %.80q: want a SKU, and 1 to %d of it", i, l.Quantity, l.SKU, maxQuantity)
		}
	}
	return nil
}

func (h *handler) get(w http.ResponseWriter, r *http.Request) error {
	o, err := h.shop.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, o)
}

func (h *handler) startPayment(w http.ResponseWriter, r *http.Request) error {
	request, err := emptyRequest(r)
	if err != nil {
		return err
	}
	reply, err := h.shop.StartPayment(r.Context(), request, r.PathValue("id"))
	return answer(w, reply, err)
}

func (h *handler) event(e Event) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		request, err := emptyRequest(r)
		if err != nil {
			return err
		}
		reply, err := h.shop.Do(r.Context(), request, r.PathValue("id"), e)
		return answer(w, reply, err)
	}
}

func (h *handler) callback(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if !h.shop.signed(body, r.Header.Get(HeaderSignature)) {
		return &badRequest{http.StatusForbidden, "the callback is not signed by the payment provider",
			"sign the body with HMAC-SHA256 under the secret, in hex in " + HeaderSignature}
	}
	var c struct {
		PaymentID string `json:"payment_id"`
	}
	if err := decode(body, &c); err != nil {
		return err
	}
	if orderclose.ValidateID(c.PaymentID) != nil {
		return fmt.Errorf("payment %.80q: %w", c.PaymentID, ErrNoPayment)
	}
	result, err := h.shop.HandleCallback(r.Context(), c.PaymentID)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, result)
}

func (h *handler) customer(w http.ResponseWriter, r *http.Request) error {
	c, err := h.shop.Customer(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c)
}

// stockLevel is a SKU as the API shows it.
type stockLevel struct {
	SKU       string `json:"sku"`
	Available int64  `json:"available"`
	Reserved  int64  `json:"reserved"`
}

func (h *handler) stock(w http.ResponseWriter, r *http.Request) error {
	st, ok, err := h.shop.orders.ReadStock(r.Context(), r.PathValue("sku"))
	if err == nil && !ok {
		err = &badRequest{http.StatusNotFound, fmt.Sprintf("the stock has no SKU %.80q", r.PathValue("sku")), `PUT /stock/{sku} with {"available": 100}`}
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, stockLevel(st))
}

func (h *handler) putStock(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	put := struct {
		Available int64 `json:"available"`
	}{-1}
	if err := decode(body, &put); err != nil {
		return err
	}
	sku := r.PathValue("sku")
	if put.Available < 0 || orderclose.ValidateID(sku) != nil {
		return &badRequest{http.StatusBadRequest, fmt.Sprintf("%d available of SKU %.80q", put.Available, sku), `send {"available": 100}, 0 or more`}
	}
	if err := h.shop.orders.PutStock(r.Context(), sku, put.Available); err != nil {
		return err
	}
	return h.stock(w, r)
}

func (h *handler) healthy(w http.ResponseWriter, _ *http.Request) error {
	_, err := io.WriteString(w, "ok\n")
	return err
}

// decode decodes a body that is one JSON object, and returns an error for unknown fields.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("more data after the object")
	}
	if err != nil {
		return &badRequest{http.StatusBadRequest, "the body: " + err.Error(), "send one JSON object as the README shows"}
	}
	return nil
}

// emptyRequest returns the Request of a call whose body has no meaning.
func emptyRequest(r *http.Request) (Request, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return Request{}, err
	}
	return requestOf(r, body)
}

// requestOf returns the Request of a call.
func requestOf(r *http.Request, body []byte) (Request, error) {
	key := r.Header.Get(HeaderKey)
	if len(key) > maxKey {
		return Request{}, &badRequest{http.StatusBadRequest, fmt.Sprintf("%s has %d bytes", HeaderKey, len(key)), fmt.Sprintf("use at most %d", maxKey)}
	}
	return Request{Key: key, Fingerprint: r.Method + " " + r.URL.Path + "\n" + string(body)}, nil
}

// answer writes the reply to a request, new or repeated.
func answer(w http.ResponseWriter, reply Reply, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	if reply.Repeated {
		w.Header().Set(HeaderRepeated, "true")
	}
	w.WriteHeader(reply.Status)
	_, _ = w.Write(append(reply.Body, '\n')) // an error means that the client has gone
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	return answer(w, Reply{Status: status, Body: body}, err)
}

// Serve serves HTTP on the listener until ctx ends. Requests under way then have five seconds to
// end.
func Serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	// WriteTimeout begins with the header: it leaves the answer of a request that used up
	// requestTimeout another seven seconds.
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      requestTimeout + 7*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(listener)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	<-drained
	return nil
}
