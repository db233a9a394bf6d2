package store

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"orderclose"
)

// PreviewClose tells what CloseOrders would say of the requests now, each in its
// place, and changes nothing: Closed stands for one that is unpaid and due. It is
// one read by key, without a lock, so what it says may change.
func (s *Store) PreviewClose(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	c, err := s.look(ctx, reqs)
	if err != nil {
		return nil, fmt.Errorf("look at %d orders from %q: %w", len(reqs), reqs[0].OrderID, s.explain(ctx, err))
	}
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		out[i] = c.outcome(r.OrderID)
	}
	return out, nil
}

func (s *Store) look(ctx context.Context, reqs []orderclose.CloseRequest) (*closing, error) {
	ids, attempts := s.distinct(reqs)
	places, err := s.places(ctx, reqs)
	if err != nil {
		return nil, err
	}
	c := &closing{
		s: s, tx: s.gorm.WithContext(ctx), attempts: attempts, places: places, preview: true,
		orders: map[string]lockedRow{}, won: map[*table][]string{},
	}
	if err := c.find(ids); err != nil {
		return nil, err
	}
	return c, c.readClock()
}

// errNoPaidStatus is why an order cannot be marked paid by a mapping that does not
// say how.
var errNoPaidStatus = errors.New("the mapping of the orders' tables does not say what paid is: list it first in orders.status.paid")

// PayOrders marks orders paid that are unpaid, whether due or not, each in a
// transaction of its own, and tells what became of each: AlreadyPaid if it is paid
// now, AlreadyClosed if it was closed or cancelled first, NotFound. The error wraps
// orderclose.ErrUnavailable or is the fault of an order; some may be paid by then,
// and paying them again is safe.
func (s *Store) PayOrders(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		// Before the transaction, which has one connection and would want another.
		where, err := s.places(ctx, reqs[i:i+1])
		if err == nil {
			err = s.transact(ctx, func(tx *gorm.DB) (err error) {
				out[i], err = s.payAsked(tx, r, where)
				return err
			})
		}
		if err != nil {
			return nil, fmt.Errorf("pay order %q: %w", r.OrderID, err)
		}
	}
	return out, nil
}

// payAsked is the payment's compare-and-set of one order, and what is true after
// it.
func (s *Store) payAsked(tx *gorm.DB, r orderclose.CloseRequest, where places) (orderclose.Outcome, error) {
	if s.mapped {
		return s.payMapped(tx, r, where)
	}
	t := &Tx{s, tx}
	won, err := t.move(r.OrderID, Unpaid, Paid, ", paid_at = ?", s.dialect.now()) // the payment's id comes with its callback, if it does
	a := AlreadyPaid
	if err == nil && !won {
		a, err = t.whyNot(r.OrderID, Unpaid)
	}
	if err != nil {
		return orderclose.Outcome{}, err
	}
	now, err := s.now(tx)
	return orderclose.Outcome{OrderID: r.OrderID, Verdict: payVerdict(a), Due: r.Due, At: now}, err
}

// payMapped locks the row in the user's table, wherever it is, and marks it paid
// if it is open.
func (s *Store) payMapped(tx *gorm.DB, r orderclose.CloseRequest, where places) (orderclose.Outcome, error) {
	ids, attempts := s.distinct([]orderclose.CloseRequest{r})
	c := &closing{s: s, tx: tx, attempts: attempts, places: where, orders: map[string]lockedRow{}, won: map[*table][]string{}, open: map[string]*table{}}
	if err := c.find(ids); err != nil {
		return orderclose.Outcome{}, err
	}
	if err := c.readClock(); err != nil {
		return orderclose.Outcome{}, err
	}
	o := c.outcome(r.OrderID)
	t := c.open[r.OrderID]
	if t == nil {
		return o, nil
	}
	paid, ok := s.q.m.Status.Pay()
	if !ok {
		return orderclose.Outcome{}, errNoPaidStatus
	}
	o.Verdict, o.Err = orderclose.AlreadyPaid, nil
	return o, wantRows(tx.Exec(t.pay, paid.Arg(), s.q.args(ids), s.q.m.Status.From.Arg()), 1)
}

// payVerdict says in a close's words what a payment found.
func payVerdict(a Answer) orderclose.Verdict {
	switch a {
	case AlreadyPaid:
		return orderclose.AlreadyPaid
	case AlreadyClosed, AlreadyCancelled:
		return orderclose.AlreadyClosed
	default:
		return orderclose.NotFound
	}
}
