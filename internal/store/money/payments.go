package money

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// Payments marks orders paid, and records payments that came too late.
type Payments struct {
	*closetx.Closer
	Home struct { // of package callback
		sync.Mutex
		Of string // where its receipts are, by Dialect.HomeSQL; "": not asked yet
	}
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
func (s *Payments) PayOrders(ctx context.Context, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		err := s.WithOrders(ctx, reqs[i:i+1], closetx.WaitForLocks, "", func(c *closetx.Rows) (err error) {
			out[i], err = s.payOrder(c, r)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("pay order %q: %w", r.OrderID, err)
		}
		if out[i].Verdict == orderclose.NotFound {
			if why := s.Astray(ctx, reqs[i:i+1])[r.OrderID]; why != nil {
				out[i].Verdict, out[i].Err, out[i].Cause = orderclose.Failed, why, orderclose.TableUnfit
			}
		}
	}
	return out, nil
}

// payOrder marks an order paid if it is open, with an event. If the order was closed since the provider was
// asked, its money is a late payment. It returns the outcome after that.
func (s *Payments) payOrder(c *closetx.Rows, r orderclose.CloseRequest) (orderclose.Outcome, error) {
	if err := c.ReadClock(); err != nil {
		return orderclose.Outcome{}, err
	}
	o := c.Outcome(r.OrderID)
	t := c.Open[r.OrderID]
	if t == nil {
		var err error
		late := o.Verdict == orderclose.AlreadyClosed //mutant:late-money-unrecorded
		if o.Verdict == orderclose.AlreadyPaid {      // or it has a status that the mapping does not name, such as cancelled
			var row Payable
			row, err = s.LockPayable(db.Own(c.Tx), r.OrderID, c.Candidates)
			late = row.Table != nil && !row.Named
		}
		if err == nil && late {
			_, err = s.AddLate(db.Own(c.Tx), LatePayment{OrderID: r.OrderID, Source: SourceRecheck}, c.Now)
		}
		return o, err
	}
	o.Verdict, o.Err = orderclose.AlreadyPaid, nil
	if err := s.MarkPaid(db.Own(c.Tx), t, s.Q.Args([]string{r.OrderID}), c.Now); err != nil {
		return o, err
	}
	if err := s.paidEvent(c, r.OrderID); err != nil { //mutant:paid-without-event
		return o, err
	}
	paid, _ := s.Q.M.Status.Pay()
	_, err := s.Settled(db.Own(c.Tx), t, s.Q.Args([]string{r.OrderID}), paid)
	return o, err
}

// MarkPaid writes the paid status to an open order, whose row is locked.
func (s *Payments) MarkPaid(tx db.Lent, t *db.Table, id []any, now time.Time) error {
	paid, ok := s.Q.M.Status.Pay()
	if !ok {
		return errNoPaidStatus
	}
	return tx.Change(len(id), t.Pay, s.Q.PayArgs(paid, id, now)...)
}

// paidEvent writes the event of an order that this transaction has marked as paid, and its copy in paid_receipts, from which PaidAgain
// writes the event again.
func (s *Payments) paidEvent(c *closetx.Rows, id string) error {
	row := c.Orders[id]
	payload, err := orderclose.OrderPaid{
		OrderID: id, Category: row.Category, Due: row.Due, PaidAt: c.Now, Version: row.Version + 1, Columns: row.Columns,
	}.Encode()
	if err != nil {
		return err
	}
	at := s.Dialect.Time(c.Now)
	event, receipt := db.Insert{Into: "outbox_events (order_id, payload, created_at)"}, db.Insert{Into: "paid_receipts (order_id, payload, paid_at)"}
	event.Row(id, string(payload), at)
	receipt.Row(id, string(payload), at)
	if err := event.Exec(c.Tx, s.Dialect); err != nil {
		return err
	}
	return receipt.Exec(c.Tx, s.Dialect) //mutant:paid-event-unrepeatable
}

// HasReceipt reports whether an order has a row in receipts, of its close, or in paid_receipts.
func (s *Payments) HasReceipt(tx db.Lent, in, id string) (has bool, err error) {
	query := "SELECT 1 FROM " + in + " WHERE order_id = ?"
	if !s.Dialect.LocksOldRows { // a locking read, as in lateOf: fits cannot tell REPEATABLE READ on MySQL and MariaDB
		query += s.Dialect.Share("")
	}
	found, err := db.RowsOf(tx, query, []any{id}, func(one *int) []any { return []any{one} })
	return len(found) > 0, err
}

// Payable is an order whose row a transaction has locked to record a payment.
type Payable struct {
	Table   *db.Table // nil: there is no such order
	ID      any       // as an argument
	State   db.State
	Named   bool      // the mapping names the status; else the state is a guess
	Status  string    // of the row
	Payment string    // the payment that paid the order; "": none, or it is unknown
	Now     time.Time // the database's clock
}

// payableRow is a row of Table.Payable.
type payableRow struct {
	found, status, payment string
	state                  db.State
	named                  int
	millis                 int64
}

// LockPayable locks the row of an order, as a close does before any other row.
func (s *Payments) LockPayable(tx db.Lent, id string, where db.Candidates) (o Payable, err error) {
	ids, _ := s.Distinct([]orderclose.CloseRequest{{OrderID: id}})
	if len(ids) == 0 {
		return o, nil
	}
	o.ID = s.Q.Args(ids)[0]
	for n := 0; ; n++ {
		t := where.Nth(id, n)
		if t == nil {
			return o, nil
		}
		rows, err := db.RowsOf(tx, t.Payable, s.Q.PayableArgs(o.ID), func(r *payableRow) []any {
			return []any{&r.found, &r.state, &r.named, db.Nullable(&r.status), &r.payment, &r.millis}
		})
		for _, r := range rows {
			if strings.TrimRight(r.found, " ") == id { // the collation may match another order, and PAD_CHAR_TO_FULL_LENGTH of the shop pads a CHAR
				o = Payable{t, o.ID, r.state, r.named == 1, r.status, strings.TrimRight(r.payment, " "), time.UnixMilli(r.millis).UTC()}
			}
		}
		if err = db.OrNoRow(err); err != nil || o.Table != nil {
			return o, err
		}
	}
}
