package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"orderclose"
)

// PreviewClose tells what CloseOrders would say of the requests now, each in its
// place, and changes nothing: Closed stands for one that is unpaid and due. It is
// one read by primary key, without a lock, so what it says may change.
func (s *Store) PreviewClose(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	ids, _ := distinct(reqs)
	if len(reqs) == 0 {
		return nil, nil
	}
	found := make(map[string]orderclose.Outcome, len(ids))
	for part := range slices.Chunk(ids, maxIn) {
		if err := s.preview(ctx, part, found); err != nil {
			return nil, fmt.Errorf("look at %d orders from %q: %w", len(reqs), reqs[0].OrderID, s.explain(ctx, err))
		}
	}
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		o, ok := found[r.OrderID]
		if !ok {
			o = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.NotFound}
		}
		out[i] = o
	}
	return out, nil
}

func (s *Store) preview(ctx context.Context, ids []string, found map[string]orderclose.Outcome) error {
	d := s.dialect
	rows, err := s.gorm.WithContext(ctx).Raw("SELECT id, status, expire_at, ? FROM orders"+d.byID+" WHERE id IN ?", d.now(), ids).Rows()
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			o  orderclose.Outcome
			st Status
		)
		if err := rows.Scan(&o.OrderID, &st, timeInto(&o.Due), timeInto(&o.At)); err != nil {
			return err
		}
		o.Verdict = verdict(st, o.Due, o.At)
		found[o.OrderID] = o
	}
	return rows.Err()
}

// PayOrders marks orders paid that are unpaid, as Pay does, each in a transaction
// of its own, and tells what became of each: AlreadyPaid if it is paid now,
// AlreadyClosed if it was closed or cancelled first, NotFound. The error wraps
// orderclose.ErrUnavailable or is the fault of an order; some may be paid by then,
// and paying them again is safe.
func (s *Store) PayOrders(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		var (
			a   Answer
			now time.Time
		)
		err := s.transact(ctx, func(tx *gorm.DB) (err error) {
			if a, err = s.leaveUnpaid(tx, r.OrderID, Paid); err == nil {
				now, err = s.now(tx)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("pay order %q: %w", r.OrderID, err)
		}
		out[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: payVerdict(a), Due: r.Due, At: now}
	}
	return out, nil
}

// payVerdict says in a close's words what a payment found.
func payVerdict(a Answer) orderclose.Verdict {
	switch a {
	case NowPaid, AlreadyPaid:
		return orderclose.AlreadyPaid
	case AlreadyClosed, AlreadyCancelled:
		return orderclose.AlreadyClosed
	default:
		return orderclose.NotFound
	}
}
