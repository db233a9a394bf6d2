package checkout

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/notices"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"
)

// Provider accepts notices to a customer or a partner, such as an SMS. It must treat a key that it has
// seen as done. *notices.StandIn implements it.
type Provider interface {
	Send(ctx context.Context, key, text string) error
}

// The readers of events. Each is a consumer group: the group's prefix, a hyphen and this name.
const (
	ReaderSMS       = "sms"
	ReaderPoints    = "points"
	ReaderLogistics = "logistics"
	ReaderDelivery  = "delivery"
	readerCache     = "cache"
)

// newNotices returns the readers that tell about a closed order, and the one that delivers a paid order.
func (s *Shop) newNotices() (*notices.Notices, error) {
	return notices.New(notices.Options{
		DB: s.o.DB, Orders: s.orders, Dialect: s.o.Dialect, Counted: s.o.Metrics.Event, Logger: s.o.Logger,
		Readers: []notices.Reader{
			{Name: ReaderSMS, Call: s.sendSMS, Apply: s.writeNotification},
			{Name: ReaderPoints, Apply: s.pointsBack},
			{Name: ReaderLogistics, Call: s.cancelDelivery},
			{Name: ReaderDelivery, Paid: true, Apply: s.planDelivery},
		},
	})
}

// ReadEvents reads the topic of events until ctx ends, as a member of one consumer group for each
// reader: the customer gets an SMS, the points of the order come back, and logistics gives up the
// delivery. The delivery of an order that was paid at the provider is planned: the provider's callback may be
// lost. Each happens once for an event, and none waits for another. One more group keeps the
// caches of the shop right. The topic keeps events for a week.
func (s *Shop) ReadEvents(ctx context.Context, app *pipeline.App, group, topic string) error {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return s.notices.Run(ctx, app, group+"-", topic) })
	if s.o.Redis != nil {
		all.Go(func() error {
			return eventreader.Read(ctx, app, eventreader.Options[orderclose.OrderClosed]{
				Group: group + "-" + readerCache, Topic: topic, Handle: s.dropViews, Logger: s.o.Logger,
			})
		})
	}
	return all.Wait()
}

// dropViews makes the next read of a closed order use the database. Only a close before the due time
// that the caches know needs it, because none shows an order as unpaid past that time. A version is
// dropped once, however often its event comes.
func (s *Shop) dropViews(ctx context.Context, events []eventreader.Event[orderclose.OrderClosed]) error {
	for _, e := range events {
		s.views.drop(ctx, e.Data.OrderID, e.Data.Version)
		s.forget(e.Data.OrderID)
	}
	return nil
}

// spent is what the shop knows about a closed order.
type spent struct {
	customer string
	points   int64
}

// spentOn reads what the shop knows about an order. ok is false for an order of another shop.
func (s *Shop) spentOn(ctx context.Context, run interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, order string) (o spent, ok bool, err error) {
	err = run.QueryRowContext(ctx, "SELECT customer, points FROM checkout_orders WHERE order_id = ?", order).Scan(&o.customer, &o.points)
	if errors.Is(err, sql.ErrNoRows) {
		return o, false, nil
	}
	return o, err == nil, err
}

// text returns the message to the customer.
func (o spent) text(e notices.Event) string {
	text := fmt.Sprintf("Your order %s was closed at %s: it was not paid in time.", e.OrderID, e.At.UTC().Format(time.RFC3339))
	if o.points > 0 {
		text += fmt.Sprintf(" You get your %d points back.", o.points)
	}
	return text
}

// sendSMS tells the customer.
func (s *Shop) sendSMS(ctx context.Context, key string, e notices.Event) error {
	o, ok, err := s.spentOn(ctx, s.o.DB, e.OrderID)
	if err != nil || !ok {
		return err
	}
	return s.o.SMS.Send(ctx, key, "to "+o.customer+": "+o.text(e))
}

// writeNotification records what the customer was told.
func (s *Shop) writeNotification(ctx context.Context, tx *sql.Tx, e notices.Event) error {
	o, ok, err := s.spentOn(ctx, tx, e.OrderID)
	if err != nil || !ok {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO checkout_notifications (event, order_id, customer, text, created_at) VALUES (?, ?, ?, ?, ?)",
		notices.Key(e.ID), e.OrderID, o.customer, o.text(e), time.Now().UnixMilli())
	return err
}

// pointsBack returns the points that were spent on an order.
func (s *Shop) pointsBack(ctx context.Context, tx *sql.Tx, e notices.Event) error {
	o, ok, err := s.spentOn(ctx, tx, e.OrderID)
	if err != nil || !ok || o.points == 0 {
		return err
	}
	return s.returnPoints(ctx, tx, e.OrderID)
}

// cancelDelivery gives up the delivery that logistics has planned for an order.
func (s *Shop) cancelDelivery(ctx context.Context, key string, e notices.Event) error {
	_, ok, err := s.spentOn(ctx, s.o.DB, e.OrderID)
	if err != nil || !ok {
		return err
	}
	return s.o.Logistics.Send(ctx, key, "order "+e.OrderID+" will not be sent")
}

// planDelivery delivers an order that orderclose has marked as paid.
func (s *Shop) planDelivery(ctx context.Context, tx *sql.Tx, e notices.Event) error {
	_, ok, err := s.spentOn(ctx, tx, e.OrderID)
	if err != nil || !ok {
		return err
	}
	return s.deliver(ctx, tx, e.OrderID)
}

// deliver plans the delivery of a paid order. A repeat for the same order changes nothing.
func (s *Shop) deliver(ctx context.Context, tx *sql.Tx, order string) error {
	_, err := tx.ExecContext(ctx, s.insertIgnore+"checkout_deliveries (order_id, planned_at) VALUES (?, ?)", order, time.Now().UnixMilli())
	return err
}

// Customer is a customer as the API shows it.
type Customer struct {
	ID            string   `json:"id"`
	Points        int64    `json:"points"`
	Notifications []string `json:"told"` // the last hundred notifications, newest first
}

// Customer returns a customer. A customer without orders has Options.Welcome points.
func (s *Shop) Customer(ctx context.Context, id string) (Customer, error) {
	c := Customer{ID: id, Points: s.o.Welcome, Notifications: []string{}}
	db := s.o.DB
	err := db.QueryRowContext(ctx, "SELECT points FROM checkout_customers WHERE customer = ?", id).Scan(&c.Points)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return c, fmt.Errorf("customer %.80q: %w: %w", id, orderclose.ErrUnavailable, err)
	}
	rows, err := db.QueryContext(ctx, "SELECT text FROM checkout_notifications WHERE customer = ? ORDER BY created_at DESC LIMIT 100", id)
	if err != nil {
		return c, fmt.Errorf("customer %.80q: %w: %w", id, orderclose.ErrUnavailable, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return c, err
		}
		c.Notifications = append(c.Notifications, text)
	}
	return c, rows.Err()
}
