package deadletters

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// UnknownFor is how long a dead letter is open whose order is not known.
	UnknownFor = 24 * time.Hour
	// ordersAtOnce is how many orders one query reads.
	ordersAtOnce = 500
)

// OutboxOfEvents is the source topic of dead letters that the dispatcher makes of events that could not be published: the
// table of their rows.
const OutboxOfEvents = "outbox_events"

// Orders is the database that has the orders. A store.Store implements it.
type Orders interface {
	// Unpaid returns, by id, whether each of the orders that exist is unpaid.
	Unpaid(ctx context.Context, orders []orderclose.CloseRequest) (map[string]bool, error)
}

// OrderState is what the database says of the order of a dead letter.
type OrderState string

// The states of an order; "": its order is not known.
const (
	OrderOpen  OrderState = "open"  // it is unpaid
	OrderEnded OrderState = "ended" // it was paid, closed, or has another status
)

// IsOpen reports whether somebody has to look at the dead letter.
func (l *Letter) IsOpen(now time.Time) bool {
	return l.Order == OrderOpen || l.Order == "" && now.Sub(l.AppendedAt) < UnknownFor //mutant:ended-letter-counts
}

// askOrders sets Letter.Order.
func (t *Topic) askOrders(ctx context.Context, letters []Letter) error {
	if t.Orders == nil {
		return nil
	}
	for some := range slices.Chunk(letters, ordersAtOnce) {
		var requests []orderclose.CloseRequest
		for _, l := range some {
			if t.hasOrder(l) {
				requests = append(requests, orderclose.CloseRequest{OrderID: l.Key, CreatedAt: l.created, Due: l.due})
			}
		}
		if len(requests) == 0 {
			continue
		}
		unpaid, err := t.Orders.Unpaid(ctx, requests)
		if err != nil {
			return err
		}
		for i := range some {
			l := &some[i]
			open, known := unpaid[l.Key]
			switch l.Order = ""; {
			case !known || !t.hasOrder(*l):
			case open:
				l.Order = OrderOpen
			default:
				l.Order = OrderEnded
			}
		}
	}
	return nil
}

// hasOrder reports whether the end of an order ends the dead letter. An event is lost until somebody writes it again.
func (t *Topic) hasOrder(l Letter) bool {
	return l.Key != "" && !t.isEvent(l)
}

func (t *Topic) isEvent(l Letter) bool {
	return l.Source.Topic == t.Events || l.Source.Topic == OutboxOfEvents
}
