package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

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
func (s *Store) RecordPayment(ctx context.Context, tx orderclose.Tx, p LatePayment) (Recorded, error) {
	p.Source = SourceCallback
	err := cmp.Or(asTransaction(tx), p.check())
	if err == nil && orderclose.ValidateID(p.OrderID) != nil {
		err = ErrNoOrder // PostgreSQL fails to read some texts that are no id
	}
	if err == nil && s.q.m.PaymentID != "" && orderclose.ValidateID(p.PaymentID) != nil {
		err = fmt.Errorf("%w: the column %s takes ids of at most %d bytes, and this one has %d: pass the provider's shorter id of the payment itself",
			ErrBadPayment, s.q.m.PaymentID, orderclose.MaxIDBytes, len(p.PaymentID))
	}
	var where candidates
	if err == nil {
		where, err = s.everywhere(ctx)
	}
	var result Recorded
	if err == nil {
		t := s.lentBy(ctx, tx)
		if err = s.fits(t); err == nil {
			result, err = s.recordPayment(t, p, where)
		}
	}
	return result, wrap(err, "record payment %.80q of order %.80q", p.PaymentID, p.OrderID)
}

// fits returns an error if a payment cannot be recorded in a transaction. The connection of the transaction may find the tables of another
// Store, because statements name these tables without a database. The orders of that Store may have the same ids. Or the transaction does
// not see what others have committed since it began. Then it would not see a late payment that a recheck has recorded, and would record
// the same money again.
func (s *Store) fits(t lent) error {
	d := s.dialect
	if d.homeSQL == "" {
		return nil
	}
	home, err := s.findHome(t.ctx)
	if err != nil {
		return err
	}
	var level, ignored string
	var hidden bool
	all, err := rowsOf(t, "SELECT "+d.homeSQL+", "+cmp.Or(d.isolation, "'', FALSE, ''"), nil, func(there *string) []any {
		return []any{there, &level, &hidden, nullable(&ignored)}
	})
	switch there := first(all); {
	case err != nil:
		return err
	case there != home: //mutant:other-store-written
		return fmt.Errorf("the transaction finds the receipts in %q, and those of this Store are in %q: begin it on a connection to the database of the Store's DSN "+
			"(in PostgreSQL with its search_path), and write your tables with the name of theirs", there, home)
	case hidden && !slices.Contains(s.q.m.Accept, mapping.RowSecurity):
		return errors.New("row-level security may hide receipts or late payments from this database user: " + showRows)
	case d.isolation != "" && level != "read committed":
		return fmt.Errorf("the transaction has the isolation %s: begin it at READ COMMITTED", level)
	}
	return nil
}

// findHome returns where the Store's connections find the table receipts. It asks once, on a connection of its own: those of the pool may all be
// in transactions that wait for the answer.
func (s *Store) findHome(ctx context.Context) (home string, err error) {
	s.home.Lock()
	defer s.home.Unlock()
	if s.home.of != "" {
		return s.home.of, nil
	}
	db, err := s.openUnbounded()
	if err != nil {
		return "", err
	}
	if err = db.QueryRowContext(ctx, "SELECT "+s.dialect.homeSQL).Scan(&home); err == nil {
		s.home.of = home
	}
	return home, errors.Join(err, db.Close())
}

func (s *Store) recordPayment(tx lent, p LatePayment, where candidates) (Recorded, error) {
	o, err := s.lockPayable(tx, p.OrderID, where)
	switch {
	case err != nil:
		return "", err
	case o.table == nil:
		return s.recordOfArchived(tx, p)
	case o.state == stateOpen || o.state == stateExcluded:
		return RecordedPaid, s.pay(tx, o, p)
	case o.payment == p.PaymentID && o.named && o.state == statePaid:
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
func (s *Store) recordOther(tx lent, o payable, p LatePayment) (Recorded, error) {
	switch {
	case !o.named:
		return "", fmt.Errorf("%w: it is %q; add it to orders.status.paid or orders.status.closed", ErrUnnamedStatus, o.status)
	case o.state == statePaid && o.payment == "":
		// The shop or, after it asked the provider, the pipeline has marked the order as paid. If no late payment tells
		// another one, the first payment that arrives paid it.
		if late, err := s.otherPaid(tx, p); err != nil {
			return "", err
		} else if !late {
			return RecordedAlready, s.setPayment(tx, o, p)
		}
	case o.state != statePaid:
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
func (s *Store) recordOfArchived(tx lent, p LatePayment) (Recorded, error) {
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
	millis, err := valueOf[int64](tx, "SELECT ?", s.dialect.millis())
	if err != nil {
		return "", err
	}
	return s.recordOther(tx, payable{state: stateClosed, named: true, now: time.UnixMilli(millis).UTC()}, p)
}

// otherPaid reports whether late_payments says that a payment did not pay a paid order whose row has no payment's id: an
// operator has reopened the order for another payment, or the payment itself is on record and was not reopened.
func (s *Store) otherPaid(tx lent, p LatePayment) (other bool, err error) {
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
func (s *Store) hasReceipt(tx lent, in, id string) (has bool, err error) {
	query := "SELECT 1 FROM " + in + " WHERE order_id = ?"
	if s.dialect.isolation == "" { // a locking read, as in lateOf: fits cannot tell REPEATABLE READ on MySQL and MariaDB
		query += s.dialect.share("")
	}
	found, err := rowsOf(tx, query, []any{id}, func(one *int) []any { return []any{one} })
	return len(found) > 0, err
}

// payable is an order whose row a transaction has locked to record a payment.
type payable struct {
	table   *table // nil: there is no such order
	id      any    // as an argument
	state   state
	named   bool      // the mapping names the status; else the state is a guess
	status  string    // of the row
	payment string    // the payment that paid the order; "": none, or it is unknown
	now     time.Time // the database's clock
}

// payableRow is a row of table.payable.
type payableRow struct {
	found, status, payment string
	state                  state
	named                  int
	millis                 int64
}

// lockPayable locks the row of an order, as a close does before any other row.
func (s *Store) lockPayable(tx lent, id string, where candidates) (o payable, err error) {
	ids, _ := s.distinct([]orderclose.CloseRequest{{OrderID: id}})
	if len(ids) == 0 {
		return o, nil
	}
	o.id = s.q.args(ids)[0]
	for n := 0; ; n++ {
		t := where.nth(id, n)
		if t == nil {
			return o, nil
		}
		rows, err := rowsOf(tx, t.payable, s.q.payableArgs(o.id), func(r *payableRow) []any {
			return []any{&r.found, &r.state, &r.named, nullable(&r.status), &r.payment, &r.millis}
		})
		for _, r := range rows {
			if r.found == id { // the collation may match another order
				o = payable{t, o.id, r.state, r.named == 1, r.status, r.payment, time.UnixMilli(r.millis).UTC()}
			}
		}
		if err = orNoRow(err); err != nil || o.table != nil {
			return o, err
		}
	}
}

// pay marks an open order paid by a payment.
func (s *Store) pay(tx lent, o payable, p LatePayment) error {
	if err := s.markPaid(tx, o.table, []any{o.id}, o.now); err != nil {
		return err
	}
	if err := s.setPayment(tx, o, p); err != nil {
		return err
	}
	paid, _ := s.q.m.Status.Pay()
	_, err := s.hasStatus(tx, o.table.has, []any{o.id}, paid)
	return err
}

// setPayment writes which payment paid an order, if the mapping has a column for it.
func (s *Store) setPayment(tx lent, o payable, p LatePayment) error {
	if o.table.payment == "" || o.payment == p.PaymentID {
		return nil
	}
	query := o.table.payment
	if o.state == statePaid { // by an earlier transaction
		query = o.table.repay
	}
	return tx.change(1, query, slices.Concat([]any{p.PaymentID}, s.q.lockArgs(o.now), []any{o.id})...)
}
