package checkout

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// ReturnCoupons gives the coupons of closed orders back. It belongs in orders.on_close of topics.yaml,
// and so runs in the transaction of each close, whichever part closes the order. It finds a coupon by
// the order that has used it: a coupon that was given back and used for another order stays used.
const ReturnCoupons = "UPDATE checkout_coupons SET order_id = NULL, returned = returned + 1 WHERE order_id IN ({ids})"

// Errors of coupons. Compare with errors.Is.
var (
	// ErrNoCoupons says that the pipeline does not give coupons back, so none can be used.
	ErrNoCoupons = errors.New("this shop takes no coupons")
	// ErrCoupon says that the customer has no such coupon, or that it is used.
	ErrCoupon = errors.New("the coupon cannot be used")
)

// Coupon is a coupon of a customer.
type Coupon struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	OrderID  string `json:"order_id,omitempty"` // the order that has used it
	Returned int64  `json:"returned"`           // how often it was given back
}

// spendCoupon marks the basket's coupon as used by its order.
func (s *Shop) spendCoupon(ctx context.Context, tx *sql.Tx, b Basket) error {
	if b.Coupon == "" {
		return nil
	}
	if !s.o.Coupons {
		return ErrNoCoupons
	}
	spent, err := inserted(ctx, tx, "UPDATE checkout_coupons SET order_id = ? WHERE coupon = ? AND customer = ? AND order_id IS NULL", b.ID, b.Coupon, b.Customer)
	if err == nil && !spent {
		err = fmt.Errorf("coupon %.80q of customer %q: %w", b.Coupon, b.Customer, ErrCoupon)
	}
	return err
}

// returnCoupon gives the coupon of an order back that the shop cancels. A close does it by itself.
func (s *Shop) returnCoupon(ctx context.Context, tx *sql.Tx, order string) error {
	_, err := tx.ExecContext(ctx, "UPDATE checkout_coupons SET order_id = NULL, returned = returned + 1 WHERE order_id = ?", order)
	return err
}

// PutCoupon gives a coupon to a customer. A coupon that exists stays as it is.
func (s *Shop) PutCoupon(ctx context.Context, id, customer string) (Coupon, error) {
	err := s.orders.Checkout(ctx, func(t *shopdb.Tx) error {
		_, err := inserted(ctx, t.SQL(), s.insertIgnore+"checkout_coupons (coupon, customer, order_id, returned) VALUES (?, ?, NULL, 0)", id, customer)
		return err
	})
	if err != nil {
		return Coupon{}, fmt.Errorf("coupon %.80q: %w", id, err)
	}
	c, _, err := s.Coupon(ctx, id)
	return c, err
}

// Coupon returns a coupon. ok is false if there is none with this id.
func (s *Shop) Coupon(ctx context.Context, id string) (c Coupon, ok bool, err error) {
	var order sql.NullString
	err = s.o.DB.QueryRowContext(ctx, "SELECT coupon, customer, order_id, returned FROM checkout_coupons WHERE coupon = ?",
		id).Scan(&c.ID, &c.Customer, &order, &c.Returned)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return c, false, nil
	case err != nil:
		return c, false, fmt.Errorf("coupon %.80q: %w: %w", id, orderclose.ErrUnavailable, err)
	}
	c.OrderID = order.String
	return c, true, nil
}

func (h *handler) coupon(w http.ResponseWriter, r *http.Request) error {
	c, ok, err := h.shop.Coupon(r.Context(), r.PathValue("id"))
	if err == nil && !ok {
		err = &badRequest{http.StatusNotFound, fmt.Sprintf("there is no coupon %.80q", r.PathValue("id")), `PUT /coupons/{id} with {"customer": "ann"}`}
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c)
}

func (h *handler) putCoupon(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var put struct {
		Customer string `json:"customer"`
	}
	if err := decode(body, &put); err != nil {
		return err
	}
	id := r.PathValue("id")
	if orderclose.ValidateID(id) != nil || orderclose.ValidateID(put.Customer) != nil {
		return &badRequest{http.StatusBadRequest, fmt.Sprintf("coupon %.80q of customer %.80q", id, put.Customer), `send {"customer": "ann"}`}
	}
	c, err := h.shop.PutCoupon(r.Context(), id, put.Customer)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c)
}
