// Package callback records payments of which the provider tells the shop, in transactions of the shop. Programs of the shop link it, by package
// sqlclose, and no part of the pipeline does.
package callback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/money"
)

// recorder adds callbacks to what Payments does.
type recorder struct{ *money.Payments }

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
func RecordPayment(ctx context.Context, of *money.Payments, tx orderclose.Tx, p money.LatePayment) (Recorded, error) {
	s := recorder{of}
	p.Source = money.SourceCallback
	err := cmp.Or(db.AsTransaction(tx), p.Check())
	if err == nil && orderclose.ValidateID(p.OrderID) != nil {
		err = ErrNoOrder // PostgreSQL fails to read some texts that are no id
	}
	if err == nil && s.Q.M.PaymentID != "" && orderclose.ValidateID(p.PaymentID) != nil {
		err = fmt.Errorf("%w: the column %s takes ids of at most %d bytes, and this one has %d: pass the provider's shorter id of the payment itself",
			money.ErrBadPayment, s.Q.M.PaymentID, orderclose.MaxIDBytes, len(p.PaymentID))
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
		if errors.Is(err, ErrNoOrder) {
			err = cmp.Or(s.Astray(ctx, []orderclose.CloseRequest{{OrderID: p.OrderID}})[p.OrderID], err)
		}
	}
	return result, db.Wrap(err, "record payment %.80q of order %.80q", p.PaymentID, p.OrderID)
}

// fits returns an error if a payment cannot be recorded in a transaction. The connection of the transaction may find the tables of another
// Store, because statements name these tables without a database. The orders of that Store may have the same ids. Or the transaction does
// not see what others have committed since it began. Then it would not see a late payment that a recheck has recorded, and would record
// the same money again.
func (s recorder) fits(t db.Lent) error {
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
func (s recorder) findHome(ctx context.Context) (home string, err error) {
	s.Home.Lock()
	defer s.Home.Unlock()
	if s.Home.Of != "" {
		return s.Home.Of, nil
	}
	pool, err := s.OpenUnbounded()
	if err != nil {
		return "", err
	}
	if err = pool.QueryRowContext(s.LimitReads(ctx), "SELECT "+s.Dialect.HomeSQL).Scan(&home); err == nil {
		s.Home.Of = home
	}
	return home, errors.Join(err, pool.Close())
}

func (s recorder) recordPayment(tx db.Lent, p money.LatePayment, where db.Candidates) (Recorded, error) {
	o, err := s.LockPayable(tx, p.OrderID, where)
	switch {
	case err != nil:
		return "", err
	case o.Table == nil:
		return s.recordOfArchived(tx, p)
	case o.State == db.StateOpen || o.State == db.StateExcluded:
		return RecordedPaid, s.pay(tx, o, p)
	case o.Payment == p.PaymentID && o.Named && o.State == db.StatePaid:
		return RecordedAlready, nil
	case o.Payment == p.PaymentID:
		// A close leaves the id that a shop wrote before the payment. Without a receipt of a close, this payment paid the
		// order, whatever became of the order later: the money of a refunded order must not go back twice.
		if closed, err := s.HasReceipt(tx, "receipts", p.OrderID); err != nil || !closed { //mutant:refunded-callback-late
			return RecordedAlready, err
		}
		p.Source = money.SourceSameID
	}
	return s.recordOther(tx, o, p)
}

// recordOther records a payment of an order that is not open, and whose row does not say that this payment paid it.
func (s recorder) recordOther(tx db.Lent, o money.Payable, p money.LatePayment) (Recorded, error) {
	if !o.Named {
		return "", fmt.Errorf("%w: it is %q; add it to orders.status.paid or orders.status.closed", ErrUnnamedStatus, o.Status)
	}
	if o.State == db.StatePaid && o.Payment == "" {
		// The shop or, after it asked the provider, the pipeline has marked the order as paid. If the order has no late payment, the first
		// payment that arrives paid it. If it has one, a person may have reopened the order for any of its payments.
		known, err := s.LateOf(tx, p.OrderID)
		if err != nil {
			return "", err
		}
		paid := func(k money.LatePayment) bool { return k.PaymentID == p.PaymentID && k.Resolution == money.Reopened }
		if len(known) == 0 || slices.ContainsFunc(known, paid) { //mutant:reopened-payment-replaced
			return RecordedAlready, s.setPayment(tx, o, p)
		}
		p.Source = money.SourceSameID
	}
	asked, err := s.HasReceipt(tx, "paid_receipts", p.OrderID)
	if err != nil {
		return "", err
	}
	if asked { // the shop may have given this money back, and only the provider knows //mutant:asked-money-given-back
		p.Source = money.SourceSameID
	}
	_, err = s.AddLate(tx, p, o.Now) //mutant:late-payment-unrecorded
	return RecordedLate, err
}

// recordOfArchived records a payment of an order without a row. Its row may have been archived since it was closed, or since orderclose
// marked it as paid.
func (s recorder) recordOfArchived(tx db.Lent, p money.LatePayment) (Recorded, error) {
	closed, err := s.HasReceipt(tx, "receipts", p.OrderID)
	if err == nil && !closed {
		closed, err = s.HasReceipt(tx, "paid_receipts", p.OrderID)
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
	return s.recordOther(tx, money.Payable{State: db.StateClosed, Named: true, Now: time.UnixMilli(millis).UTC()}, p)
}

// pay marks an open order paid by a payment.
func (s recorder) pay(tx db.Lent, o money.Payable, p money.LatePayment) error {
	if err := s.MarkPaid(tx, o.Table, []any{o.ID}, o.Now); err != nil {
		return err
	}
	if err := s.setPayment(tx, o, p); err != nil {
		return err
	}
	paid, _ := s.Q.M.Status.Pay()
	return s.HasStatus(tx, o.Table, []any{o.ID}, paid)
}

// setPayment writes which payment paid an order, if the mapping has a column for it.
func (s recorder) setPayment(tx db.Lent, o money.Payable, p money.LatePayment) error {
	if o.Table.Payment == "" || o.Payment == p.PaymentID {
		return nil
	}
	query := o.Table.Payment
	if o.State == db.StatePaid { // by an earlier transaction
		query = o.Table.Repay
	}
	return tx.Change(1, query, slices.Concat([]any{p.PaymentID}, s.Q.LockArgs(o.Now), []any{o.ID})...)
}
