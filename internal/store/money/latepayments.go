package money

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// LatePayment is a row of late_payments: a payment of an order that was closed, cancelled or paid by another payment before.
type LatePayment struct {
	ID        int64      `json:"id"` // of the row; 0: not written yet
	OrderID   string     `json:"order_id"`
	PaymentID string     `json:"payment_id,omitempty"` // the provider's id; "": unknown, because the provider was asked about the order
	Amount    int64      `json:"amount,omitempty"`     // in minor units of Currency, such as cents
	Currency  string     `json:"currency,omitempty"`   // ISO 4217; "": the amount is unknown
	RefundKey string     `json:"refund_key,omitempty"` // the idempotency key of its refund at the provider; "": PaymentID is unknown
	Source    LateSource `json:"source"`
	FoundAt   time.Time  `json:"found_at"` // by the database's clock
	// ResolvedAt is when an operator said what became of the money; zero: nobody has yet.
	ResolvedAt time.Time      `json:"resolved_at,omitzero"`
	Resolution LateResolution `json:"resolution,omitempty"`
	ResolvedBy string         `json:"resolved_by,omitempty"`
	// PerhapsSame has the IDs of the order's other rows, also of resolved ones, that are perhaps the same money: one of the two
	// has no PaymentID, because the provider was asked about the order. A row that is resolved has none.
	PerhapsSame []int64 `json:"perhaps_same_as,omitempty"`
}

// Money returns the amount with its currency, in minor units; "": it is unknown.
func (p LatePayment) Money() string {
	if p.Currency == "" {
		return ""
	}
	return fmt.Sprintf("%d %s", p.Amount, p.Currency)
}

// LateSummary is how many late payments nobody has resolved. Rows that are perhaps the same money count once.
type LateSummary struct {
	Unresolved int64     `json:"unresolved"`
	Oldest     time.Time `json:"oldest,omitzero"` // when the oldest of them was found; zero: there is none
}

// LateSource is how a late payment was found.
type LateSource string

// The values of LateSource.
const (
	SourceCallback LateSource = "callback" // the provider called the shop
	SourceRecheck  LateSource = "recheck"  // the provider was asked, and the order was closed
	// SourceSameID is a callback of money that a person may have decided about: its id is in the row of the closed order, or orderclose had
	// marked the order as paid, or the order has a late payment without an id. A person has to ask whether this money paid the order or
	// another one, and whether it went back.
	SourceSameID LateSource = "same_id"
)

// LateResolution is what became of the money of a late payment; "": nobody has decided yet.
type LateResolution string

// The values of LateResolution.
const (
	Refunded LateResolution = "refunded" // the customer has the money back
	Reopened LateResolution = "reopened" // the customer gets the goods
)

var (
	// ErrBadPayment says that the fields of a payment cannot be recorded.
	ErrBadPayment = errors.New("the payment cannot be recorded")
	// ErrNoLatePayment says that late_payments has no row with an id.
	ErrNoLatePayment = errors.New("there is no such late payment")
	// ErrResolvedBefore says that somebody has resolved a late payment.
	ErrResolvedBefore = errors.New("the late payment was resolved before")
)

// Limits of the columns of late_payments, in bytes.
const (
	maxPaymentID = 255
	maxCurrency  = 8
)

// Check returns an error that wraps ErrBadPayment and names the field that cannot be recorded.
func (p LatePayment) Check() error {
	bad := func(what string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrBadPayment, fmt.Sprintf(what, args...))
	}
	switch {
	case len(p.PaymentID) > maxPaymentID || !utf8.ValidString(p.PaymentID) || strings.ContainsFunc(p.PaymentID, unicode.IsControl) ||
		strings.TrimSpace(p.PaymentID) != p.PaymentID:
		return bad("its id is %.80q: want at most %d bytes of UTF-8 without control characters or space at either end", p.PaymentID, maxPaymentID)
	case p.PaymentID == "" && p.Source == SourceCallback:
		return bad("it has no id: pass the provider's id of the payment")
	case p.Amount < 0:
		return bad("its amount is %d: want the minor units that the customer paid", p.Amount)
	case p.Amount != 0 && p.Currency == "":
		return bad("it has an amount and no currency")
	case len(p.Currency) > maxCurrency || strings.ContainsFunc(p.Currency, func(r rune) bool { return r <= ' ' || r > '~' }):
		return bad("its currency is %.80q: want a code of ISO 4217", p.Currency)
	}
	return nil
}

// RecordLate records payments that succeeded although their orders were closed, each in a transaction of
// its own. It skips a payment that is recorded already, and a payment of an order that is not closed. An order whose
// status the mapping does not name counts as closed. So does an order whose row is gone, if it has a receipt. A payment
// without an id is recorded only if its order has no late payment. It returns how many it recorded. An error wraps orderclose.ErrUnavailable
// if the database failed, and orderclose.ErrContended if another transaction locked the order's row for too
// long; recording all payments again is safe.
func (s *Payments) RecordLate(ctx context.Context, payments []LatePayment) (n int, err error) {
	for _, p := range payments {
		isNew, missing := false, false
		err := p.Check()
		var where db.Candidates
		if err == nil {
			where, err = s.Everywhere(ctx)
		}
		if err == nil {
			err = s.Transact(ctx, func(tx *gorm.DB) error {
				isNew, missing = false, false
				t := db.Own(tx)
				o, err := s.LockPayable(t, p.OrderID, where)
				if err != nil {
					return err
				}
				closed := o.State == db.StateClosed || !o.Named && o.State == db.StatePaid
				if o.Table == nil { // its row may have been archived since it was closed //mutant:archived-money-unrecorded
					if closed, err = s.HasReceipt(t, "receipts", p.OrderID); err != nil {
						return err
					}
					missing = !closed
					if o.Now, err = s.NowIn(tx); err != nil {
						return err
					}
				}
				if closed {
					isNew, err = s.AddLate(t, p, o.Now)
				}
				return err
			})
		}
		if err == nil && missing {
			err = s.Astray(ctx, []orderclose.CloseRequest{{OrderID: p.OrderID}})[p.OrderID]
		}
		if err != nil {
			return n, fmt.Errorf("record the late payment of order %q: %w", p.OrderID, err)
		}
		if isNew {
			n++
		}
	}
	return n, nil
}

// AddLate writes a late payment and its event, and reports whether it is new: whether the order has no row with its id,
// or without an id no row at all. The order's row is locked, if there is one. An amount that becomes known is added, unless
// somebody has resolved the row. Nothing else of a row changes. A row without an id may be the same money as a row with one:
// markSame says so when rows are read. A person may have given back the money of the row without an id, or may be about to, so a
// payment that comes after it has the source SourceSameID, and no reader of events gives it back.
func (s *Payments) AddLate(tx db.Lent, p LatePayment, now time.Time) (isNew bool, err error) {
	known, err := s.LateOf(tx, p.OrderID)
	if err != nil || p.PaymentID == "" && len(known) > 0 {
		return false, err
	}
	amount := sql.NullInt64{Int64: p.Amount, Valid: p.Currency != ""}
	for _, k := range known {
		if k.PaymentID == p.PaymentID { //mutant:second-payment-vanishes
			if k.Currency == "" && p.Currency != "" {
				_, err = tx.Exec("UPDATE late_payments SET amount = ?, currency = ? WHERE id = ? AND resolved_at IS NULL", amount, p.Currency, k.ID)
			}
			return false, err
		}
		if k.PaymentID == "" { //mutant:decided-money-given-back
			p.Source = SourceSameID
		}
	}
	at := s.Dialect.TimeText(now)
	if err := tx.Change(1, "INSERT INTO late_payments (order_id, payment_id, amount, currency, source, found_at) VALUES (?, ?, ?, ?, ?, ?)",
		p.OrderID, p.PaymentID, amount, p.Currency, p.Source, at); err != nil {
		return false, err
	}
	p.FoundAt = now
	event, err := p.Event()
	if err != nil {
		return false, err
	}
	return true, tx.Change(1, "INSERT INTO outbox_events (order_id, payload, created_at) VALUES (?, ?, ?)", p.OrderID, event, at)
}

// LateOf reads the late payments of an order. It locks them: at REPEATABLE READ another read would not see what other transactions committed since.
func (s *Payments) LateOf(tx db.Lent, order string) ([]LatePayment, error) {
	return db.RowsOf(tx, "SELECT id, payment_id, currency, resolution FROM late_payments WHERE order_id = ?"+db.AllRows+s.Dialect.ForUpdate, []any{order},
		func(k *LatePayment) []any { return []any{&k.ID, &k.PaymentID, &k.Currency, &k.Resolution} })
}

// Event returns the event of a late payment.
func (p LatePayment) Event() (string, error) {
	payload, err := orderclose.OrderPaidLate{
		OrderID: p.OrderID, PaymentID: p.PaymentID, Amount: p.Amount, Currency: p.Currency, Source: string(p.Source), FoundAt: p.FoundAt,
	}.Encode()
	return string(payload), err
}

// CountLate counts the late payments that nobody has resolved. Rows that are perhaps the same money count once.
func (s *Payments) CountLate(ctx context.Context) (sum LateSummary, err error) {
	const named = "EXISTS (SELECT 1 FROM late_payments n WHERE n.order_id = l.order_id AND n.payment_id <> '' AND n.resolved_at IS NULL)"
	err = s.Gorm.WithContext(ctx).Raw("SELECT COUNT(CASE WHEN payment_id = '' AND "+named+" THEN NULL ELSE 1 END), MIN(found_at)"+
		" FROM late_payments l WHERE resolved_at IS NULL").Row().Scan(&sum.Unresolved, db.TimeInto(&sum.Oldest))
	return sum, s.FailedTo(ctx, err, "count late payments")
}

// LatePayments returns at most limit late payments: those that nobody has resolved, the oldest first, or with all the newest rows first.
func (s *Payments) LatePayments(ctx context.Context, all bool, limit int) ([]LatePayment, error) {
	which := "WHERE resolved_at IS NULL ORDER BY found_at, id LIMIT ?"
	if all {
		which = "ORDER BY id DESC LIMIT ?"
	}
	found, err := LatePayments(s.Gorm.WithContext(ctx), which, limit)
	return found, s.FailedTo(ctx, err, "read late payments")
}

func LatePayments(tx *gorm.DB, which string, arg any) ([]LatePayment, error) {
	found, err := db.RowsOf(db.Own(tx),
		"SELECT id, order_id, payment_id, COALESCE(amount, 0), currency, source, found_at, resolved_at, resolution, resolved_by"+
			" FROM late_payments "+which, []any{arg},
		func(p *LatePayment) []any {
			return []any{&p.ID, &p.OrderID, &p.PaymentID, &p.Amount, &p.Currency, &p.Source, db.TimeInto(&p.FoundAt), db.TimeInto(&p.ResolvedAt),
				&p.Resolution, &p.ResolvedBy}
		})
	if err != nil {
		return nil, err
	}
	return found, markSame(tx, found)
}

// markSame sets PerhapsSame and RefundKey of payments that are late.
func markSame(tx *gorm.DB, payments []LatePayment) error {
	orders := map[string]bool{}
	for _, p := range payments {
		if p.Resolution == "" {
			orders[p.OrderID] = true
		}
	}
	of := map[string][]LatePayment{} // the rows of orders that have one without an id
	const query = "SELECT id, order_id, payment_id FROM late_payments l WHERE order_id IN ?" +
		" AND EXISTS (SELECT 1 FROM late_payments n WHERE n.order_id = l.order_id AND n.payment_id = '') ORDER BY id"
	for part := range slices.Chunk(slices.Collect(maps.Keys(orders)), db.MaxIn) {
		rows, err := db.RowsOf(db.Own(tx), query, []any{part}, func(p *LatePayment) []any { return []any{&p.ID, &p.OrderID, &p.PaymentID} })
		if err != nil {
			return err
		}
		for _, r := range rows {
			of[r.OrderID] = append(of[r.OrderID], r)
		}
	}
	for i, p := range payments {
		if p.PaymentID != "" {
			id := orderclose.OrderPaidLate{OrderID: p.OrderID, PaymentID: p.PaymentID}.ID()
			payments[i].RefundKey = "refund-" + strings.TrimPrefix(id, orderclose.EventOrderPaidLate+"/") // as docs/wire.md tells readers of the event
		}
		for _, other := range of[p.OrderID] {
			if p.Resolution == "" && (p.PaymentID == "") != (other.PaymentID == "") {
				payments[i].PerhapsSame = append(payments[i].PerhapsSame, other.ID)
			}
		}
	}
	return nil
}

// LatePayment returns the late payment of an id, or an error that wraps ErrNoLatePayment, or orderclose.ErrUnavailable if the database failed.
func (s *Payments) LatePayment(ctx context.Context, id int64) (LatePayment, error) {
	return s.latePayment(s.Gorm.WithContext(ctx), id)
}

func (s *Payments) latePayment(tx *gorm.DB, id int64) (LatePayment, error) {
	found, err := LatePayments(tx, "WHERE id = ?", id)
	if err == nil && len(found) == 0 {
		return LatePayment{}, fmt.Errorf("%w: %d", ErrNoLatePayment, id)
	}
	if err != nil {
		return LatePayment{}, s.FailedTo(tx.Statement.Context, err, "read late payment %d", id)
	}
	return found[0], nil
}

// ResolveLate records what became of the money of a late payment, and who said so: text of at most 255
// characters. It returns the row as it is now. If somebody has resolved it, the error wraps ErrResolvedBefore, and the
// row is returned too. The error wraps ErrNoLatePayment for an unknown id, and orderclose.ErrUnavailable if the database
// failed.
func (s *Payments) ResolveLate(ctx context.Context, id int64, how LateResolution, by string) (p LatePayment, err error) {
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		res := tx.Exec("UPDATE late_payments SET resolved_at = ?, resolution = ?, resolved_by = ? WHERE id = ? AND resolved_at IS NULL", s.Dialect.Now(), how, by, id)
		if res.Error != nil {
			return res.Error
		}
		if p, err = s.latePayment(tx, id); err == nil && res.RowsAffected == 0 {
			err = fmt.Errorf("%w: %s by %s", ErrResolvedBefore, p.Resolution, p.ResolvedBy)
		}
		return err
	})
	return p, db.Wrap(err, "resolve late payment %d", id)
}
