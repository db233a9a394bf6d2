package checkout

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// publishPause is how long no order is published after a failure, so that a Kafka that is not
// reachable does not slow every checkout down. The sweep closes orders that were not published.
const publishPause = 2 * time.Second

// Basket is a new order of a customer.
type Basket struct {
	ID       string `json:"id"` // the order's id; empty: the shop chooses an id
	Customer string `json:"customer"`
	Category string `json:"category"`
	Items    []Line `json:"items"`
	Points   int64  `json:"points"` // points spent on the order; a close returns them
	Coupon   string `json:"coupon"` // a coupon that is used for the order; a close gives it back
	// PaymentMethod is how the customer wants to pay. Rules of topics.yaml may depend on it.
	PaymentMethod string `json:"payment_method"`
}

// Line is one line of a basket.
type Line struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// ErrFewPoints says that a customer has too few points.
var ErrFewPoints = errors.New("too few points")

// Create creates an order. It writes the order with its due time, reserves its stock, spends the
// points and schedules the close in one transaction. Without an Outbox it schedules the close
// after that; if Kafka does not accept the record, the order still exists and the sweep closes it
// if it is not paid. The errors are those of shopdb.Orders.CreateOrder, ErrFewPoints and ErrOtherRequest.
func (s *Shop) Create(ctx context.Context, r Request, b Basket) (Reply, error) {
	if b.ID == "" {
		b.ID = "o-" + newID()
	}
	items := make([]shopdb.Item, len(b.Items))
	for i, l := range b.Items {
		items[i] = shopdb.Item(l)
	}
	var v shopdb.View
	if s.o.Filter != nil {
		s.o.Filter.Add(ctx, b.ID)
	}
	reply, err := s.idempotent(ctx, r, func(t *shopdb.Tx) (status int, answer any, err error) {
		v, err = s.create(ctx, t, b, items)
		return http.StatusCreated, show(v, v.At), err
	})
	if err == nil && !reply.Repeated {
		s.changed(ctx, v)
		if s.o.Outbox == nil {
			s.publish(ctx, v.Order)
		}
	}
	return reply, err
}

// create writes an order in a transaction.
func (s *Shop) create(ctx context.Context, t *shopdb.Tx, b Basket, items []shopdb.Item) (shopdb.View, error) {
	now, err := t.Now() // the due time is set by the clock that later decides
	if err != nil {
		return shopdb.View{}, err
	}
	if err := s.spendPoints(ctx, t.SQL(), b); err != nil {
		return shopdb.View{}, err
	}
	if err := s.spendCoupon(ctx, t.SQL(), b); err != nil {
		return shopdb.View{}, err
	}
	facts := orderclose.Facts{CreatedAt: now, Categories: []string{b.Category}}
	if b.PaymentMethod != "" {
		facts.Attributes = map[string]any{"payment_method": b.PaymentMethod}
	}
	order := s.o.Producer.OrderWith(b.ID, facts)
	if err := t.CreateOrder(order, items); err != nil {
		return shopdb.View{}, err
	}
	if s.o.Outbox != nil {
		if err := s.o.Outbox.Add(ctx, orderclose.SQL(t.SQL()), order); err != nil {
			return shopdb.View{}, err
		}
	}
	return t.ViewOrder(b.ID)
}

// spendPoints writes the order's customer and subtracts the points that the order spends.
func (s *Shop) spendPoints(ctx context.Context, tx *sql.Tx, b Basket) error {
	if _, err := inserted(ctx, tx, s.insertIgnore+"checkout_customers (customer, points) VALUES (?, ?)", b.Customer, s.o.Welcome); err != nil {
		return err
	}
	if b.Points > 0 {
		enough, err := inserted(ctx, tx, "UPDATE checkout_customers SET points = points - ? WHERE customer = ? AND points >= ?", b.Points, b.Customer, b.Points)
		if err != nil {
			return err
		}
		if !enough {
			return fmt.Errorf("customer %q: %w", b.Customer, ErrFewPoints)
		}
	}
	// Ignored if the row exists: then the order exists too, and CreateOrder reports it.
	_, err := inserted(ctx, tx, s.insertIgnore+"checkout_orders (order_id, customer, points) VALUES (?, ?, ?)", b.ID, b.Customer, b.Points)
	return err
}

// publish schedules the close of a committed order.
func (s *Shop) publish(ctx context.Context, o orderclose.Order) {
	err := errors.New("kafka was not reachable a moment ago")
	if !s.publishing.on() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.PublishWithin)
		err = s.o.Producer.Schedule(ctx, o)
		cancel()
		if err == nil {
			return
		}
		s.publishing.begin(publishPause)
	}
	s.o.Metrics.Unscheduled()
	s.o.Logger.Warn("order not scheduled, the next sweep closes it", "order", o.ID, "due", o.Due, "err", err)
}
