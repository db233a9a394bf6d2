package money

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Payments marks orders paid, and records payments that came too late.
type Payments struct {
	*closetx.Closer
	home struct {
		sync.Mutex
		of string // where its receipts are, by Dialect.HomeSQL; "": not asked yet
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
			var row payable
			row, err = s.lockPayable(db.Own(c.Tx), r.OrderID, c.Candidates)
			late = row.table != nil && !row.named
		}
		if err == nil && late {
			_, err = s.recordLate(db.Own(c.Tx), LatePayment{OrderID: r.OrderID, Source: SourceRecheck}, c.Now)
		}
		return o, err
	}
	o.Verdict, o.Err = orderclose.AlreadyPaid, nil
	if err := s.markPaid(db.Own(c.Tx), t, s.Q.Args([]string{r.OrderID}), c.Now); err != nil {
		return o, err
	}
	if err := s.paidEvent(c, r.OrderID); err != nil { //mutant:paid-without-event
		return o, err
	}
	paid, _ := s.Q.M.Status.Pay()
	_, err := s.Settled(db.Own(c.Tx), t, s.Q.Args([]string{r.OrderID}), paid)
	return o, err
}

// markPaid writes the paid status to an open order, whose row is locked.
func (s *Payments) markPaid(tx db.Lent, t *db.Table, id []any, now time.Time) error {
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

// Recorded is what RecordPayment did with a payment.
type Recorded string

// The results of RecordPayment.
const (
	RecordedPaid    Recorded = "paid"         // the order was unpaid, and is paid now
	RecordedAlready Recorded = "already_paid" // this payment paid the order, as far as is known; nothing changed
	RecordedLate    Recorded = "paid_late"    // the order was closed, or another payment paid it: the payment is late
)

// Errors of RecordPayment, beside ErrBadPayment.
var (
	// ErrNoOrder says that a payment names an order that has neither a row nor a receipt.
	ErrNoOrder = errors.New("there is no such order: look for the id of the order in what the shop passed to the provider," +
		" and let the provider call again, because the order may not be committed yet")
	// ErrUnnamedStatus says that the mapping does not say whether an order with this status was paid or closed.
	ErrUnnamedStatus = errors.New("the mapping does not name the status of the order")
)

// RecordPayment records a payment of which the provider told the shop, in the shop's transaction tx, which
// it neither commits nor rolls back. See sqlclose.Store.RecordPayment. Errors of the database are
// returned as the driver has them, wrapped: the caller rolls tx back.
func (s *Payments) RecordPayment(ctx context.Context, tx orderclose.Tx, p LatePayment) (Recorded, error) {
	p.Source = SourceCallback
	err := cmp.Or(db.AsTransaction(tx), p.check())
	if err == nil && orderclose.ValidateID(p.OrderID) != nil {
		err = ErrNoOrder // PostgreSQL fails to read some texts that are no id
	}
	if err == nil && s.Q.M.PaymentID != "" && orderclose.ValidateID(p.PaymentID) != nil {
		err = fmt.Errorf("%w: the column %s takes ids of at most %d bytes, and this one has %d: pass the provider's shorter id of the payment itself",
			ErrBadPayment, s.Q.M.PaymentID, orderclose.MaxIDBytes, len(p.PaymentID))
	}
	var where db.Candidates
	if err == nil {
		where, err = s.Everywhere(ctx)
	}
	var result Recorded
	if err == nil {
		t := s.LentBy(ctx, tx)
		if err = s.fits(t); err == nil {
			result, err = s.recordPayment(t, p, where)
		}
	}
	return result, db.Wrap(err, "record payment %.80q of order %.80q", p.PaymentID, p.OrderID)
}

// fits returns an error if a payment cannot be recorded in a transaction. The connection of the transaction may find the tables of another
// Store, because statements name these tables without a database. The orders of that Store may have the same ids. Or the transaction does
// not see what others have committed since it began. Then it would not see a late payment that a recheck has recorded, and would record
// the same money again.
func (s *Payments) fits(t db.Lent) error {
	d := s.Dialect
	if d.OneWriter { // it has one database
		return nil
	}
	home, err := s.findHome(t.Ctx)
	if err != nil {
		return err
	}
	var level, ignored string
	var hidden bool
	all, err := db.RowsOf(t, "SELECT "+d.HomeSQL+", "+d.InTxSQL, nil, func(there *string) []any {
		return []any{there, &level, &hidden, db.Nullable(&ignored)}
	})
	switch there := db.First(all); {
	case err != nil:
		return err
	case there != home: //mutant:other-store-written
		return fmt.Errorf("the transaction finds the receipts in %q, and those of this Store are in %q: begin it on a connection to the database of the Store's DSN "+
			"(in PostgreSQL with its search_path), and write your tables with the name of theirs", there, home)
	case hidden && !slices.Contains(s.Q.M.Accept, mapping.RowSecurity):
		return errors.New("row-level security may hide receipts or late payments from this database user: " + db.ShowRows)
	case level != "" && level != "read committed":
		return fmt.Errorf("the transaction has the isolation %s: begin it at READ COMMITTED", level)
	}
	return nil
}

// findHome returns where the Store's connections find the table receipts. It asks once, on a connection of its own: those of the pool may all be
// in transactions that wait for the answer.
func (s *Payments) findHome(ctx context.Context) (home string, err error) {
	s.home.Lock()
	defer s.home.Unlock()
	if s.home.of != "" {
		return s.home.of, nil
	}
	pool, err := s.OpenUnbounded()
	if err != nil {
		return "", err
	}
	if err = pool.QueryRowContext(ctx, "SELECT "+s.Dialect.HomeSQL).Scan(&home); err == nil {
		s.home.of = home
	}
	return home, errors.Join(err, pool.Close())
}

func (s *Payments) recordPayment(tx db.Lent, p LatePayment, where db.Candidates) (Recorded, error) {
	o, err := s.lockPayable(tx, p.OrderID, where)
	switch {
	case err != nil:
		return "", err
	case o.table == nil:
		return s.recordOfArchived(tx, p)
	case o.state == db.StateOpen || o.state == db.StateExcluded:
		return RecordedPaid, s.pay(tx, o, p)
	case o.payment == p.PaymentID && o.named && o.state == db.StatePaid:
		return RecordedAlready, nil
	case o.payment == p.PaymentID:
		// A close leaves the id that a shop wrote before the payment. Without a receipt of a close, this payment paid the
		// order, whatever became of the order later: the money of a refunded order must not go back twice.
		if closed, err := s.hasReceipt(tx, "receipts", p.OrderID); err != nil || !closed { //mutant:refunded-callback-late
			return RecordedAlready, err
		}
		p.Source = SourceSameID
	}
	return s.recordOther(tx, o, p)
}

// recordOther records a payment of an order that is not open, and whose row does not say that this payment paid it.
func (s *Payments) recordOther(tx db.Lent, o payable, p LatePayment) (Recorded, error) {
	switch {
	case !o.named:
		return "", fmt.Errorf("%w: it is %q; add it to orders.status.paid or orders.status.closed", ErrUnnamedStatus, o.status)
	case o.state == db.StatePaid && o.payment == "":
		// The shop or, after it asked the provider, the pipeline has marked the order as paid. If no late payment tells
		// another one, the first payment that arrives paid it.
		if late, err := s.otherPaid(tx, p); err != nil {
			return "", err
		} else if !late {
			return RecordedAlready, s.setPayment(tx, o, p)
		}
	case o.state != db.StatePaid:
		if asked, err := s.hasReceipt(tx, "paid_receipts", p.OrderID); err != nil {
			return "", err
		} else if asked { // the shop may have given this money back, and only the provider knows //mutant:asked-money-given-back
			p.Source = SourceSameID
		}
	}
	_, err := s.recordLate(tx, p, o.now) //mutant:late-payment-unrecorded
	return RecordedLate, err
}

// recordOfArchived records a payment of an order without a row. Its row may have been archived since it was closed, or since orderclose
// marked it as paid.
func (s *Payments) recordOfArchived(tx db.Lent, p LatePayment) (Recorded, error) {
	closed, err := s.hasReceipt(tx, "receipts", p.OrderID)
	if err == nil && !closed {
		closed, err = s.hasReceipt(tx, "paid_receipts", p.OrderID)
	}
	switch {
	case err != nil:
		return "", err
	case !closed:
		return "", ErrNoOrder
	}
	// Not a time: the driver of the shop's connection may read it in another zone.
	millis, err := db.ValueOf[int64](tx, "SELECT ?", s.Dialect.Millis())
	if err != nil {
		return "", err
	}
	return s.recordOther(tx, payable{state: db.StateClosed, named: true, now: time.UnixMilli(millis).UTC()}, p)
}

// otherPaid reports whether late_payments says that a payment did not pay a paid order whose row has no payment's id: an
// operator has reopened the order for another payment, or the payment itself is on record and was not reopened.
func (s *Payments) otherPaid(tx db.Lent, p LatePayment) (other bool, err error) {
	known, err := s.lateOf(tx, p.OrderID)
	for _, k := range known {
		if k.PaymentID == p.PaymentID {
			return k.Resolution != Reopened, err
		}
		other = other || k.Resolution == Reopened && k.PaymentID != "" //mutant:reopened-payment-replaced
	}
	return other, err
}

// hasReceipt reports whether an order has a row in receipts, of its close, or in paid_receipts.
func (s *Payments) hasReceipt(tx db.Lent, in, id string) (has bool, err error) {
	query := "SELECT 1 FROM " + in + " WHERE order_id = ?"
	if !s.Dialect.LocksOldRows { // a locking read, as in lateOf: fits cannot tell REPEATABLE READ on MySQL and MariaDB
		query += s.Dialect.Share("")
	}
	found, err := db.RowsOf(tx, query, []any{id}, func(one *int) []any { return []any{one} })
	return len(found) > 0, err
}

// payable is an order whose row a transaction has locked to record a payment.
type payable struct {
	table   *db.Table // nil: there is no such order
	id      any       // as an argument
	state   db.State
	named   bool      // the mapping names the status; else the state is a guess
	status  string    // of the row
	payment string    // the payment that paid the order; "": none, or it is unknown
	now     time.Time // the database's clock
}

// payableRow is a row of Table.Payable.
type payableRow struct {
	found, status, payment string
	state                  db.State
	named                  int
	millis                 int64
}

// lockPayable locks the row of an order, as a close does before any other row.
func (s *Payments) lockPayable(tx db.Lent, id string, where db.Candidates) (o payable, err error) {
	ids, _ := s.Distinct([]orderclose.CloseRequest{{OrderID: id}})
	if len(ids) == 0 {
		return o, nil
	}
	o.id = s.Q.Args(ids)[0]
	for n := 0; ; n++ {
		t := where.Nth(id, n)
		if t == nil {
			return o, nil
		}
		rows, err := db.RowsOf(tx, t.Payable, s.Q.PayableArgs(o.id), func(r *payableRow) []any {
			return []any{&r.found, &r.state, &r.named, db.Nullable(&r.status), &r.payment, &r.millis}
		})
		for _, r := range rows {
			if strings.TrimRight(r.found, " ") == id { // the collation may match another order, and PAD_CHAR_TO_FULL_LENGTH of the shop pads a CHAR
				o = payable{t, o.id, r.state, r.named == 1, r.status, strings.TrimRight(r.payment, " "), time.UnixMilli(r.millis).UTC()}
			}
		}
		if err = db.OrNoRow(err); err != nil || o.table != nil {
			return o, err
		}
	}
}

// pay marks an open order paid by a payment.
func (s *Payments) pay(tx db.Lent, o payable, p LatePayment) error {
	if err := s.markPaid(tx, o.table, []any{o.id}, o.now); err != nil {
		return err
	}
	if err := s.setPayment(tx, o, p); err != nil {
		return err
	}
	paid, _ := s.Q.M.Status.Pay()
	return s.HasStatus(tx, o.table, []any{o.id}, paid)
}

// setPayment writes which payment paid an order, if the mapping has a column for it.
func (s *Payments) setPayment(tx db.Lent, o payable, p LatePayment) error {
	if o.table.Payment == "" || o.payment == p.PaymentID {
		return nil
	}
	query := o.table.Payment
	if o.state == db.StatePaid { // by an earlier transaction
		query = o.table.Repay
	}
	return tx.Change(1, query, slices.Concat([]any{p.PaymentID}, s.Q.LockArgs(o.now), []any{o.id})...)
}
