package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"orderclose"
)

// Item is one line of an order. Several lines may name one SKU.
type Item struct {
	SKU      string
	Quantity int64
}

// Tx is a transaction of a checkout: what a shop does to an order, and whatever
// it writes to tables of its own beside it, happens together or not at all. Its
// methods say no whom an error belongs to; Store.Checkout does.
type Tx struct {
	s  *Store
	tx *gorm.DB
}

// Checkout runs fn in one transaction, READ COMMITTED, and all of it again if it
// lost against another one, so fn must begin from nothing each time. What fn
// returns rolls back unless it is nil. The error is fn's, or wraps
// orderclose.ErrUnavailable or orderclose.ErrContended.
func (s *Store) Checkout(ctx context.Context, fn func(*Tx) error) error {
	return s.transact(ctx, func(tx *gorm.DB) error { return fn(&Tx{s, tx}) })
}

// SQL is the transaction itself, for tables that the store does not know. Do not
// commit it.
func (t *Tx) SQL() *sql.Tx {
	tx, ok := t.tx.Statement.ConnPool.(*sql.Tx)
	if !ok {
		panic("store: a transaction without database/sql's underneath") // gorm began it
	}
	return tx
}

// Now is the database's clock, in UTC and whole milliseconds.
func (t *Tx) Now() (time.Time, error) { return t.s.now(t.tx) }

// CreateOrder writes an unpaid order with its lines and reserves their stock, in
// one transaction. The due time is rounded up to the millisecond, as it is in
// the order's record. The error wraps ErrOutOfStock, ErrDuplicateOrder,
// ErrBadItem, one of package orderclose's about orders, or
// orderclose.ErrUnavailable.
func (s *Store) CreateOrder(ctx context.Context, o orderclose.Order, items []Item) error {
	return s.Checkout(ctx, func(t *Tx) error { return t.CreateOrder(o, items) })
}

// CreateOrder is Store.CreateOrder within this transaction.
func (t *Tx) CreateOrder(o orderclose.Order, items []Item) error {
	if err := checkOrder(o, items); err != nil {
		return fmt.Errorf("create order: %w", err)
	}
	err := t.s.insertOrder(t.tx, o, items)
	if err == nil {
		err = reserve(t.tx, items)
	}
	if err != nil {
		return fmt.Errorf("create order %q: %w", o.ID, err)
	}
	return nil
}

func checkOrder(o orderclose.Order, items []Item) error {
	if err := o.Validate(o.Due, 0); err != nil { // not how far ahead it is due
		return err
	}
	for i, item := range items {
		if item.Quantity < 1 || orderclose.ValidateID(item.SKU) != nil {
			return fmt.Errorf("order %q, line %d: %d of %q: %w", o.ID, i+1, item.Quantity, item.SKU, ErrBadItem)
		}
	}
	return nil
}

func (s *Store) insertOrder(tx *gorm.DB, o orderclose.Order, items []Item) error {
	in := insert{into: "orders (id, category, status, created_at, expire_at, version)"}
	in.row(o.ID, o.Category, Unpaid, s.dialect.time(o.CreatedAt), s.dialect.time(orderclose.CeilMilli(o.Due)), 1)
	if err := in.exec(tx); err != nil {
		if s.dialect.Fault(err) == FaultDuplicate {
			return ErrDuplicateOrder
		}
		return err
	}
	lines := insert{into: "order_items (order_id, line_no, sku_id, quantity)"}
	for i, item := range items {
		lines.row(o.ID, i+1, item.SKU, item.Quantity)
	}
	return lines.exec(tx)
}

// reserve takes stock in SKU order, as closing gives it back.
func reserve(tx *gorm.DB, items []Item) error {
	sums := map[string]int64{}
	for _, item := range items {
		sums[item.SKU] += item.Quantity
	}
	for _, sku := range slices.Sorted(maps.Keys(sums)) {
		res := tx.Exec("UPDATE stock SET available = available - ?, reserved = reserved + ?"+
			" WHERE sku_id = ? AND available >= ?", sums[sku], sums[sku], sku, sums[sku])
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			return fmt.Errorf("%d of SKU %q: %w", sums[sku], sku, ErrOutOfStock)
		}
	}
	return nil
}

// OrderView is an order as it is, and when that was.
type OrderView struct {
	orderclose.Order
	Status  Status
	Version int64     // one more with every change of status
	At      time.Time // the database's clock when it was read
}

// PastDue reports whether the order is one that waits for its close.
func (v OrderView) PastDue() bool { return v.Status == Unpaid && !v.Due.After(v.At) }

// ErrNoOrder says that the database has no order of that id.
var ErrNoOrder = errors.New("there is no such order")

// ViewOrder reads an order. The error wraps ErrNoOrder or
// orderclose.ErrUnavailable.
func (s *Store) ViewOrder(ctx context.Context, id string) (OrderView, error) {
	v, err := (&Tx{s, s.gorm.WithContext(ctx)}).ViewOrder(id)
	if err != nil {
		return v, s.explain(ctx, err)
	}
	return v, nil
}

// ViewOrder is Store.ViewOrder within this transaction.
func (t *Tx) ViewOrder(id string) (v OrderView, err error) {
	err = sql.ErrNoRows
	if orderclose.ValidateID(id) == nil { // the database might find something else
		row := t.tx.Raw("SELECT id, category, created_at, expire_at, status, version, ? FROM orders WHERE id = ?",
			t.s.dialect.now(), id).Row()
		err = row.Scan(&v.ID, &v.Category, timeInto(&v.CreatedAt), timeInto(&v.Due), &v.Status, &v.Version, timeInto(&v.At))
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoOrder
	}
	if err != nil {
		return v, fmt.Errorf("read order %q: %w", id, err)
	}
	return v, nil
}

// Pay marks an order paid unless it is closed, cancelled or paid already. Past
// its due time it still does: a payment provider's word is taken until the order
// is closed. The payment's id is the provider's; the money of a payment that
// comes too late, or beside another one, is to go back, and a refund intent says
// so, once, however often the provider calls. The error wraps ErrBadPayment or
// orderclose.ErrUnavailable.
func (s *Store) Pay(ctx context.Context, id, payment string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Pay(id, payment)
		return err
	})
	return answered(a, err)
}

// Pay is Store.Pay within this transaction.
func (t *Tx) Pay(id, payment string) (Answer, error) {
	if orderclose.ValidateID(payment) != nil {
		return "", fmt.Errorf("pay order %q by payment %.80q: %w", id, payment, ErrBadPayment)
	}
	a, err := t.pay(id, payment)
	if err != nil {
		return "", fmt.Errorf("pay order %q by payment %q: %w", id, payment, err)
	}
	return a, nil
}

func (t *Tx) pay(id, payment string) (Answer, error) {
	won, err := t.move(id, Unpaid, Paid, ", paid_at = ?, payment_id = ?", t.s.dialect.now(), payment)
	if err != nil || won {
		return NowPaid, err
	}
	st, by, err := t.status(id)
	switch {
	case errors.Is(err, ErrNoOrder):
		return NotFound, nil
	case err != nil:
		return "", err
	}
	switch st {
	case Unpaid:
		return "", errors.New("it is unpaid and could not be changed")
	case Closed:
		return t.refund(id, payment, "closed", PaidAfterClose)
	case Cancelled:
		return t.refund(id, payment, "cancelled", PaidAfterCancel)
	}
	if by == "" { // the provider was asked, or payments had no ids then: the first to come is the one that paid
		if by, err = t.claim(id, payment); err != nil {
			return "", err
		}
	}
	if by == payment {
		return AlreadyPaid, nil
	}
	return t.refund(id, payment, "paid_twice", PaidTwice)
}

// claim writes down which payment has paid an order that is paid by none that is
// known, and returns the one that has.
func (t *Tx) claim(id, payment string) (by string, err error) {
	res := t.tx.Exec("UPDATE orders SET payment_id = ? WHERE id = ? AND payment_id IS NULL", payment, id)
	if res.Error != nil || res.RowsAffected == 1 {
		return payment, res.Error
	}
	_, by, err = t.status(id) // another was faster
	return by, err
}

// refund leaves a refund intent, or finds that there is one. An order that has
// left the unpaid state never comes back to it, so that nothing need be locked.
func (t *Tx) refund(id, payment, reason string, first Answer) (Answer, error) {
	var known int64
	err := t.tx.Raw("SELECT COUNT(*) FROM refund_intents WHERE order_id = ? AND payment_id = ?", id, payment).Scan(&known).Error
	if err != nil || known > 0 {
		return RefundNoted, err
	}
	now, err := t.Now()
	if err != nil {
		return "", err
	}
	in := insert{into: "refund_intents (order_id, payment_id, reason, created_at)"}
	in.row(id, payment, reason, t.s.dialect.time(now))
	err = in.exec(t.tx)
	if err != nil && t.s.dialect.Fault(err) == FaultDuplicate {
		return RefundNoted, nil
	}
	return first, err
}

// Cancel marks an order cancelled unless it is paid, closed or cancelled
// already, and gives its stock back in the same transaction.
func (s *Store) Cancel(ctx context.Context, id string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Cancel(id)
		return err
	})
	return answered(a, err)
}

// Cancel is Store.Cancel within this transaction.
func (t *Tx) Cancel(id string) (Answer, error) {
	a, err := t.leave(id, Unpaid, Cancelled, kindCancel, t.s.moveStock)
	if err != nil {
		return "", fmt.Errorf("cancel order %q: %w", id, err)
	}
	return a, nil
}

// Ship marks a paid order shipped and takes its stock out of what is reserved,
// for good, in the same transaction.
func (s *Store) Ship(ctx context.Context, id string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Ship(id)
		return err
	})
	return answered(a, err)
}

// Ship is Store.Ship within this transaction.
func (t *Tx) Ship(id string) (Answer, error) {
	a, err := t.leave(id, Paid, Shipped, kindShip, takeOut)
	if err != nil {
		return "", fmt.Errorf("ship order %q: %w", id, err)
	}
	return a, nil
}

// Confirm marks a shipped order confirmed: the customer has it.
func (s *Store) Confirm(ctx context.Context, id string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Confirm(id)
		return err
	})
	return answered(a, err)
}

// Confirm is Store.Confirm within this transaction.
func (t *Tx) Confirm(id string) (Answer, error) {
	a, err := t.leave(id, Shipped, Confirmed, "", nil)
	if err != nil {
		return "", fmt.Errorf("confirm order %q: %w", id, err)
	}
	return a, nil
}

// answered drops what a transaction would have said that did not come to be.
func answered(a Answer, err error) (Answer, error) {
	if err != nil {
		return "", err
	}
	return a, nil
}

// leave moves an order from one status to the next, and its stock with it.
func (t *Tx) leave(id string, from, to Status, k kind, stock func(*gorm.DB, map[string][]orderclose.Release) error) (Answer, error) {
	won, err := t.move(id, from, to, "")
	if err == nil && !won {
		return t.whyNot(id, from)
	}
	if err != nil || stock == nil {
		return Answer(to.String()), err
	}
	now, err := t.Now()
	if err != nil {
		return "", err
	}
	released, err := t.s.recordLines(t.tx, []string{id}, k, now)
	if err != nil {
		return "", err
	}
	return Answer(to.String()), stock(t.tx, released)
}

// move is the same compare-and-set as a close's, from another side. It reports
// whether it has won.
func (t *Tx) move(id string, from, to Status, set string, args ...any) (bool, error) {
	if orderclose.ValidateID(id) != nil {
		return false, nil
	}
	args = append(append([]any{to}, args...), id, from)
	// The plus keeps SQLite off the index on status; elsewhere it does nothing.
	res := t.tx.Exec("UPDATE orders SET status = ?, version = version + 1"+set+" WHERE id = ? AND +status = ?", args...)
	return res.RowsAffected == 1, res.Error
}

// status reads how an order stands, and what paid it.
func (t *Tx) status(id string) (st Status, payment string, err error) {
	if orderclose.ValidateID(id) != nil {
		return 0, "", ErrNoOrder
	}
	err = t.tx.Raw("SELECT status, COALESCE(payment_id, '') FROM orders WHERE id = ?", id).Row().Scan(&st, &payment)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoOrder
	}
	return st, payment, err
}

// whyNot says why an order could not leave a status.
func (t *Tx) whyNot(id string, from Status) (Answer, error) {
	st, _, err := t.status(id)
	switch {
	case errors.Is(err, ErrNoOrder):
		return NotFound, nil
	case err != nil:
		return "", err
	case st == from:
		// It came there after the statement that did not find it there.
		return "", fmt.Errorf("%w: it has just become %v", orderclose.ErrContended, st)
	}
	return whyNot(st, from), nil
}

// takeOut takes what orders release out of what is reserved, in SKU order. It
// must be the last statement of its transaction.
func takeOut(tx *gorm.DB, released map[string][]orderclose.Release) error {
	for _, releases := range released { // of one order
		for _, r := range releases {
			res := tx.Exec("UPDATE stock SET reserved = reserved - ? WHERE sku_id = ? AND reserved >= ?", r.Quantity, r.SKU, r.Quantity)
			if err := wantRows(res, 1); err != nil {
				return fmt.Errorf("take %d of SKU %q out of what is reserved: is it missing from the stock, or less reserved than ordered? %w",
					r.Quantity, r.SKU, err)
			}
		}
	}
	return nil
}

// PutStock sets how much of a SKU is available, zero or more. What is reserved
// stays.
func (s *Store) PutStock(ctx context.Context, sku string, available int64) error {
	err := orderclose.ValidateID(sku)
	if err == nil && available < 0 {
		err = fmt.Errorf("%d is below zero", available) // not every server checks
	}
	if err == nil {
		err = s.transact(ctx, func(tx *gorm.DB) error {
			return tx.Clauses(clause.OnConflict{
				Columns:   []clause.Column{{Name: "sku_id"}},
				DoUpdates: clause.AssignmentColumns([]string{"available"}),
			}).Create(&stockRow{SKU: sku, Available: available}).Error
		})
	}
	if err != nil {
		return fmt.Errorf("put stock of SKU %q: %w", sku, err)
	}
	return nil
}

// Stock is how much there is of a SKU: what can be ordered, and what unpaid and
// paid orders hold.
type Stock struct {
	SKU                 string
	Available, Reserved int64
}

// ReadStock reads the stock of a SKU; ok is false if it has none and never had.
func (s *Store) ReadStock(ctx context.Context, sku string) (st Stock, ok bool, err error) {
	var rows []stockRow
	if err := s.gorm.WithContext(ctx).Where("sku_id = ?", sku).Find(&rows).Error; err != nil {
		return st, false, fmt.Errorf("read the stock of SKU %q: %w", sku, s.explain(ctx, err))
	}
	if len(rows) == 0 {
		return st, false, nil
	}
	return Stock(rows[0]), true, nil
}

type stockRow struct {
	SKU       string `gorm:"column:sku_id;primaryKey"`
	Available int64
	Reserved  int64
}

// TableName implements gorm's Tabler.
func (stockRow) TableName() string { return "stock" }
