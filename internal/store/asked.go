package store

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"orderclose"
	"orderclose/internal/tables"
)

// PreviewClose tells what CloseOrders would say of the requests now, each in its
// place, and changes nothing: Closed stands for one that is unpaid and due. It is
// one read by primary key, without a lock, so what it says may change.
func (s *Store) PreviewClose(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	c, err := s.preview(ctx, reqs)
	if err != nil {
		if s.q.months != nil {
			s.q.months.forget() // a table may be gone
		}
		return nil, fmt.Errorf("look at %d orders from %q: %w", len(reqs), reqs[0].OrderID, s.explain(ctx, err))
	}
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		out[i] = c.outcomes([]orderclose.CloseRequest{r})[0] // a repeat says the same
	}
	return out, nil
}

func (s *Store) preview(ctx context.Context, reqs []orderclose.CloseRequest) (*closing, error) {
	ids, attempts := s.distinct(reqs)
	places, err := s.places(ctx, reqs)
	if err != nil {
		return nil, err
	}
	c := &closing{s: s, tx: s.gorm.WithContext(ctx), attempts: attempts, places: places, peek: true,
		orders: map[string]lockedRow{}, won: map[*table][]string{}}
	if err := c.find(ids); err != nil {
		return nil, err
	}
	return c, c.readClock()
}

// PayOrders marks orders paid that are unpaid, as Pay does, each in a transaction
// of its own, and tells what became of each: AlreadyPaid if it is paid now,
// AlreadyClosed if it was closed or cancelled first, NotFound. In the user's own
// tables their status becomes the first of the mapping's paid values. The error
// wraps orderclose.ErrUnavailable or is the fault of an order; some may be paid by
// then, and paying them again is safe.
func (s *Store) PayOrders(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		var err error
		if out[i], err = s.payOrder(ctx, r); err != nil {
			return nil, fmt.Errorf("pay order %q: %w", r.OrderID, err)
		}
	}
	return out, nil
}

func (s *Store) payOrder(ctx context.Context, r orderclose.CloseRequest) (o orderclose.Outcome, err error) {
	one := []orderclose.CloseRequest{r}
	ids, attempts := s.distinct(one)
	places, err := s.places(ctx, one)
	if err != nil {
		return o, err
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		c := &closing{s: s, tx: tx, attempts: attempts, places: places, orders: map[string]lockedRow{}, won: map[*table][]string{}}
		if err := c.find(ids); err != nil {
			return err
		}
		if err := c.readClock(); err != nil {
			return err
		}
		o = c.outcomes(one)[0]
		switch o.Verdict {
		case orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.NotFound:
			return nil
		}
		o.Verdict, o.Err = orderclose.AlreadyPaid, nil
		return s.markPaid(tx, c.orders[r.OrderID].in, ids, c.now)
	})
	return o, err
}

// markPaid is the compare-and-set of a payment on a locked row.
func (s *Store) markPaid(tx *gorm.DB, t *table, ids []string, now time.Time) error {
	m := s.q.m
	set, args := "", []any{}
	if s.mapped {
		if len(m.Status.Paid) == 0 {
			return fmt.Errorf("%w: nobody knows how a paid order looks: list the values under orders.status.paid in topics.yaml", orderclose.ErrUnavailable)
		}
		args = append(args, m.Status.Paid[0].Arg())
	} else {
		set, args = ", paid_at = ?", append(args, Paid, s.dialect.time(now))
	}
	if v := tables.Quote(m.Version); m.Version != "" {
		set += ", " + v + " = " + v + " + 1"
	}
	status := tables.Quote(m.Status.Column)
	query := fmt.Sprintf("UPDATE %s SET %s = ?%s WHERE %s IN ? AND %s%s = ?",
		tables.Quote(t.name), status, set, tables.Quote(m.ID.Column), s.dialect.unindexed, status)
	return wantRows(tx.Exec(query, append(args, s.q.args(ids), m.Status.From.Arg())...), len(ids))
}
