package checkout

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// eventsAtOnce is how many events one transaction handles.
const eventsAtOnce = 100

// Log reads events from Kafka. internal/kafka.Cluster implements it.
type Log interface {
	// Consume serves the partitions of a topic that the group gives to this process
	// until ctx ends.
	Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error
	// Read reads a partition from a position on, waiting a little for a record.
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
}

// ReadEvents reads the topic of events as a member of the group until ctx ends. In one
// transaction it writes a notification for each customer whose order was closed and returns
// the points, once per event id. It commits the offset after that, so a restart continues
// there. The topic keeps events for a week.
func (s *Shop) ReadEvents(ctx context.Context, log Log, group, topic string) error {
	return log.Consume(ctx, group, topic, func(ctx context.Context, claim wire.Claim) {
		at := wire.Position{Topic: claim.Topic, Partition: claim.Partition, Offset: claim.Offset}
		for pauses := retry.NewBackOff(); ctx.Err() == nil; {
			next, err := s.readNext(ctx, log, claim, at)
			if err == nil {
				at = next
				claim.Done(at.Offset, "")
				pauses.Reset()
				continue
			}
			if ctx.Err() == nil {
				s.o.Logger.Warn("reading events failed, will retry", "topic", claim.Topic, "partition", claim.Partition, "offset", at.Offset, "err", err)
			}
			retry.Sleep(ctx, pauses.NextBackOff())
		}
	})
}

// readNext handles the records at the position and returns the next position. The position
// identifies the log, so that a topic that was deleted and recreated is noticed.
func (s *Shop) readNext(ctx context.Context, log Log, claim wire.Claim, at wire.Position) (wire.Position, error) {
	f, err := log.Read(ctx, at)
	if err != nil {
		return at, err
	}
	for what, gone := range map[string]*wire.Range{"lost": f.Lost, "unreadable": f.Corrupt} {
		if gone != nil {
			s.o.Metrics.Event("bad")
			s.o.Logger.Error("events not read, their customers get no notification", "reason", what, "topic", claim.Topic, "partition", claim.Partition,
				"first", gone.First, "last", gone.Last, "err", gone.Err)
		}
	}
	for part := range slices.Chunk(f.Records, eventsAtOnce) {
		if err := s.handleEvents(ctx, s.decodeEvents(claim, part)); err != nil {
			return at, err
		}
	}
	at.Offset, at.Log = f.Next, f.Log
	return at, nil
}

// event is a decoded event with its id.
type event struct {
	id string
	orderclose.OrderClosed
}

// decodeEvents decodes records. It skips events of another type, and events that cannot be
// read: they must not block the others.
func (s *Shop) decodeEvents(claim wire.Claim, records []wire.RawRecord) []event {
	var events []event
	for _, record := range records {
		m, err := record.Message()
		var e event
		if err == nil {
			e.id, e.OrderClosed, err = orderclose.DecodeOrderClosed(m.Value)
		}
		switch {
		case err == nil:
			events = append(events, e)
		case errors.Is(err, orderclose.ErrOtherEvent):
			s.o.Metrics.Event("other")
		default:
			s.o.Metrics.Event("bad")
			s.o.Logger.Error("event cannot be read, its customer gets no notification", "topic", claim.Topic, "partition", claim.Partition, "offset", m.Offset, "err", err)
		}
	}
	return events
}

// handleEvents handles events in one transaction, each once.
func (s *Shop) handleEvents(ctx context.Context, events []event) error {
	if len(events) == 0 {
		return nil
	}
	var notified []notification
	err := s.orders.Checkout(ctx, func(t *shopdb.Tx) error {
		notified = notified[:0]
		for _, e := range events {
			n, fresh, err := s.handleEvent(ctx, t.SQL(), e)
			if err != nil {
				return fmt.Errorf("event %q: %w", e.id, err)
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
func (s *Shop) handleEvent(ctx context.Context, tx *sql.Tx, e event) (n notification, fresh bool, err error) {
	now := time.Now().UnixMilli()
	fresh, err = inserted(ctx, tx, s.insertIgnore+"checkout_events (event, created_at) VALUES (?, ?)", digest(e.id), now)
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
		digest(e.id), n.order, n.customer, n.text, now)
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
