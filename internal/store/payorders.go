package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// PreviewClose returns the outcomes that CloseOrders would return now, in the order of reqs,
// and changes nothing: Closed stands for an order that is unpaid and due. It reads by key
// without a lock, so an outcome may change at once. Pauses count, those of
// categories too; with an empty path no pause counts. The errors of a pause and of a database that
// failed are those of CloseOrders.
func (s *Store) PreviewClose(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	c, err := s.readForClose(ctx, path, reqs)
	if err != nil {
		return nil, fmt.Errorf("read %d orders from %q: %w", len(reqs), reqs[0].OrderID, s.explain(ctx, err))
	}
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		out[i] = c.outcome(r.OrderID)
	}
	return out, nil
}

// readForClose reads what a close would lock. With an empty path it reads no pauses.
func (s *Store) readForClose(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) (*closing, error) {
	ids, requests := s.distinct(reqs)
	candidates, err := s.candidates(ctx, reqs)
	if err != nil {
		return nil, err
	}
	c := s.newClosing(s.gorm.WithContext(ctx), requests, candidates)
	if err := c.readOrders(ids, lockNothing, path); err != nil {
		return nil, err
	}
	return c, c.readClock()
}

// readOrders reads the rows of orders, and locks them as locks says. With an empty path it reads no pauses.
func (c *closing) readOrders(ids []string, locks locking, path orderclose.Path) error {
	if c.locks, c.path = locks, path; path != "" { //mutant:paused-payment-asked
		if err := c.readPauses(); err != nil {
			return err
		}
	}
	return c.lockOrders(ids)
}

// errNoPaidStatus says that the mapping names no status to write to a paid order.
var errNoPaidStatus = errors.New("the mapping names no paid status: list it first in orders.status.paid")

// PayOrders marks unpaid orders paid, due or not, each in a transaction of its own, which also writes the
// event orderclose.OrderPaid of each order that it marks. It returns
// an outcome for each: AlreadyPaid if the order is paid now, AlreadyClosed if it was closed or
// cancelled before, or NotFound. The payment of an order that was closed or cancelled is recorded as RecordLate
// does, so the provider's answer must be one on a payment that succeeded. An error wraps orderclose.ErrUnavailable if the database failed
// and orderclose.ErrContended if another transaction locked the order's row for too long. Any
// other error is caused by the order or by the mapping, such as a mapping without a paid status.
// After an error some orders may be paid; paying them again is safe.
func (s *Store) PayOrders(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		err := s.withOrders(ctx, reqs[i:i+1], waitForLocks, "", func(c *closing) (err error) {
			out[i], err = c.payOrder(r)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("pay order %q: %w", r.OrderID, err)
		}
	}
	return out, nil
}

// withOrders runs do in a transaction that has read orders as readOrders does.
func (s *Store) withOrders(ctx context.Context, reqs []orderclose.CloseRequest, locks locking, path orderclose.Path, do func(c *closing) error) error {
	where, err := s.candidates(ctx, reqs) // outside the transaction, which holds one connection already
	if err != nil {
		return err
	}
	ids, requests := s.distinct(reqs)
	return s.transact(ctx, func(tx *gorm.DB) error {
		c := s.newClosing(tx, requests, where)
		if err := c.readOrders(ids, locks, path); err != nil {
			return err
		}
		return do(c)
	})
}

// payOrder marks an order paid if it is open, with an event. If the order was closed since the provider was
// asked, its money is a late payment. It returns the outcome after that.
func (c *closing) payOrder(r orderclose.CloseRequest) (orderclose.Outcome, error) {
	if err := c.readClock(); err != nil {
		return orderclose.Outcome{}, err
	}
	o := c.outcome(r.OrderID)
	t := c.open[r.OrderID]
	if t == nil {
		var err error
		late := o.Verdict == orderclose.AlreadyClosed //mutant:late-money-unrecorded
		if o.Verdict == orderclose.AlreadyPaid {      // or it has a status that the mapping does not name, such as cancelled
			var row payable
			row, err = c.s.lockPayable(own(c.tx), r.OrderID, c.candidates)
			late = row.table != nil && !row.named
		}
		if err == nil && late {
			_, err = c.s.recordLate(own(c.tx), LatePayment{OrderID: r.OrderID, Source: SourceRecheck}, c.now)
		}
		return o, err
	}
	o.Verdict, o.Err = orderclose.AlreadyPaid, nil
	if err := c.s.markPaid(own(c.tx), t, c.s.q.args([]string{r.OrderID}), c.now); err != nil {
		return o, err
	}
	if err := c.paidEvent(r.OrderID); err != nil { //mutant:paid-without-event
		return o, err
	}
	paid, _ := c.s.q.m.Status.Pay()
	_, err := c.s.settled(own(c.tx), t, c.s.q.args([]string{r.OrderID}), paid)
	return o, err
}

// markPaid writes the paid status to an open order, whose row is locked.
func (s *Store) markPaid(tx lent, t *table, id []any, now time.Time) error {
	paid, ok := s.q.m.Status.Pay()
	if !ok {
		return errNoPaidStatus
	}
	return tx.change(len(id), t.pay, s.q.payArgs(paid, id, now)...)
}

// paidEvent writes the event of an order that this transaction has marked as paid, and its copy in paid_receipts, from which PaidAgain
// writes the event again.
func (c *closing) paidEvent(id string) error {
	row := c.orders[id]
	payload, err := orderclose.OrderPaid{
		OrderID: id, Category: row.category, Due: row.due, PaidAt: c.now, Version: row.version + 1, Columns: row.columns,
	}.Encode()
	if err != nil {
		return err
	}
	at := c.s.dialect.time(c.now)
	event, receipt := insert{into: "outbox_events (order_id, payload, created_at)"}, insert{into: "paid_receipts (order_id, payload, paid_at)"}
	event.row(id, string(payload), at)
	receipt.row(id, string(payload), at)
	if err := event.exec(c.tx, c.s.dialect); err != nil {
		return err
	}
	return receipt.exec(c.tx, c.s.dialect) //mutant:paid-event-unrepeatable
}
