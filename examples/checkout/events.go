package checkout

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/pipeline"
)

// Events reads the events of closed orders. pipeline.Connections implements it.
type Events interface {
	ReadEvents(ctx context.Context, o pipeline.EventOptions) error
}

// ReadEvents reads the topic of events as a member of the group until ctx ends. In one
// transaction it writes a notification for each customer whose order was closed and returns
// the points, once per event id. The topic keeps events for a week.
func (s *Shop) ReadEvents(ctx context.Context, events Events, group, topic string) error {
	return events.ReadEvents(ctx, pipeline.EventOptions{
		Group: group, Topic: topic, Handle: s.handleEvents, Logger: s.o.Logger,
		Skipped: func(err error) {
			if errors.Is(err, orderclose.ErrOtherEvent) {
				s.o.Metrics.Event("other")
				return
			}
			s.o.Metrics.Event("bad")
			s.o.Logger.Error("a customer gets no notification", "err", err)
		},
	})
}

// handleEvents handles events in one transaction, each once.
func (s *Shop) handleEvents(ctx context.Context, events []pipeline.Event) error {
	var notified []notification
	err := s.orders.Checkout(ctx, func(t *shopdb.Tx) error {
		notified = notified[:0]
		for _, e := range events {
			n, fresh, err := s.handleEvent(ctx, t.SQL(), e)
			if err != nil {
				return fmt.Errorf("event %q: %w", e.ID, err)
			}
			if fresh {
				notified = append(notified, n)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range notified {
		s.o.Metrics.Event("done")
		if n.text == "" {
			continue
		}
		s.o.Logger.Info("customer notified", "customer", n.customer, "order", n.order, "text", n.text)
	}
	for range len(events) - len(notified) {
		s.o.Metrics.Event("repeated")
	}
	return nil
}

// notification is a message to a customer.
type notification struct{ order, customer, text string }

// handleEvent handles one event unless it was handled before. An order of another shop has no
// customer here and gets no notification.
func (s *Shop) handleEvent(ctx context.Context, tx *sql.Tx, e pipeline.Event) (n notification, fresh bool, err error) {
	now := time.Now().UnixMilli()
	fresh, err = inserted(ctx, tx, s.insertIgnore+"checkout_events (event, created_at) VALUES (?, ?)", digest(e.ID), now)
	if err != nil || !fresh {
		return n, false, err
	}
	n.order = e.OrderID
	var points int64
	err = tx.QueryRowContext(ctx, "SELECT customer, points FROM checkout_orders WHERE order_id = ?", e.OrderID).Scan(&n.customer, &points)
	if errors.Is(err, sql.ErrNoRows) {
		return n, true, nil
	}
	if err != nil {
		return n, false, err
	}
	n.text = fmt.Sprintf("Your order %s was closed at %s: it was not paid in time.", e.OrderID, e.ClosedAt.UTC().Format(time.RFC3339))
	if points > 0 {
		n.text += fmt.Sprintf(" Your %d points are back.", points)
		if err := s.returnPoints(ctx, tx, e.OrderID); err != nil {
			return n, false, err
		}
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO checkout_notifications (event, order_id, customer, text, created_at) VALUES (?, ?, ?, ?, ?)",
		digest(e.ID), n.order, n.customer, n.text, now)
	return n, true, err
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
