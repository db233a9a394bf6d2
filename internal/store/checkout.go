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

// Item is one line of an order. Several lines may have the same SKU.
type Item struct {
	SKU      string
	Quantity int64
}

// Tx is a transaction of a checkout: the changes of an order, and the shop's writes to its
// own tables, are committed together or not at all. Errors of its methods do not say whether
// the database is at fault; the error of Store.Checkout does.
type Tx struct {
	s  *Store
	tx *gorm.DB
}

// Checkout runs fn in a READ COMMITTED transaction. It runs fn again if the transaction lost
// a deadlock or a lock wait, so fn must not keep state between runs. It rolls back if fn
// returns an error. The error is the error of fn, or wraps orderclose.ErrUnavailable or
// orderclose.ErrContended.
func (s *Store) Checkout(ctx context.Context, fn func(*Tx) error) error {
	return s.transact(ctx, func(tx *gorm.DB) error { return fn(&Tx{s, tx}) })
}

// SQL returns the underlying transaction, for tables that the store does not know. The caller
// must not commit it.
func (t *Tx) SQL() *sql.Tx {
	tx, ok := t.tx.Statement.ConnPool.(*sql.Tx)
	if !ok {
		panic("store: a transaction without a sql.Tx") // gorm always begins one
	}
	return tx
}

// Now returns the database's clock, in UTC and whole milliseconds.
func (t *Tx) Now() (time.Time, error) { return t.s.now(t.tx) }

// CreateOrder writes an unpaid order with its lines and reserves their stock, in one
// transaction. It rounds the due time up to the millisecond, as the order's record does. The
// error wraps ErrOutOfStock, ErrDuplicateOrder, ErrBadItem, an error of package orderclose
// about orders, or orderclose.ErrUnavailable.
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
	if err := o.Validate(o.Due, 0); err != nil { // 0: the due time may be any time ahead
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

// reserve takes stock in SKU order, the order in which a close releases it.
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

// OrderView is an order at a point in time.
type OrderView struct {
	orderclose.Order
	Status  Status
	Version int64     // grows by one with each change of status
	At      time.Time // the database's clock at the read
}

// PastDue reports whether the order is due and not closed.
func (v OrderView) PastDue() bool { return v.Status == Unpaid && !v.Due.After(v.At) }

// ErrNoOrder says that the database has no order with this id.
var ErrNoOrder = errors.New("the order does not exist")

// ViewOrder reads an order. The error wraps ErrNoOrder or orderclose.ErrUnavailable.
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
	if orderclose.ValidateID(id) == nil { // for another id the database might match another order
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

// Pay marks an order paid unless it is closed, cancelled or paid. It also does so past the
// due time: the payment provider decides until the order is closed. payment is the
// provider's id of the payment. If the payment comes too late, or another payment paid the
// order, its money must go back: Pay writes a refund intent once, however often the provider
// calls. The error wraps ErrBadPayment or orderclose.ErrUnavailable.
func (s *Store) Pay(ctx context.Context, id, payment string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Pay(id, payment)
		return err
	})
	return answerOrError(a, err)
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
	won, err := t.compareAndSet(id, Unpaid, Paid, ", paid_at = ?, payment_id = ?", t.s.dialect.now(), payment)
	if err != nil || won {
		return AnswerPaid, err
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
		return "", errors.New("the order is unpaid, and the update did not change it")
	case Closed:
		return t.refund(id, payment, "closed", PaidAfterClose)
	case Cancelled:
		return t.refund(id, payment, "cancelled", PaidAfterCancel)
	}
	if by == "" { // the pipeline marked the order paid, or an old version without payment ids: the first payment that arrives paid it
		if by, err = t.recordPayment(id, payment); err != nil {
			return "", err
		}
	}
	if by == payment {
		return AlreadyPaid, nil
	}
	return t.refund(id, payment, "paid_twice", PaidTwice)
}

// recordPayment writes the payment to an order that is paid by an unknown payment. It returns the
// payment that paid the order.
func (t *Tx) recordPayment(id, payment string) (by string, err error) {
	res := t.tx.Exec("UPDATE orders SET payment_id = ? WHERE id = ? AND payment_id IS NULL", payment, id)
	if res.Error != nil || res.RowsAffected == 1 {
		return payment, res.Error
	}
	_, by, err = t.status(id) // another payment was faster
	return by, err
}

// refund writes a refund intent, unless it exists. No lock is needed: an order that left the
// unpaid state never returns to it.
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

// Cancel marks an order cancelled unless it is paid, closed or cancelled, and releases its
// stock in the same transaction.
func (s *Store) Cancel(ctx context.Context, id string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Cancel(id)
		return err
	})
	return answerOrError(a, err)
}

// Cancel is Store.Cancel within this transaction.
func (t *Tx) Cancel(id string) (Answer, error) {
	a, err := t.changeStatus(id, Unpaid, Cancelled, kindCancel, t.s.moveStock)
	if err != nil {
		return "", fmt.Errorf("cancel order %q: %w", id, err)
	}
	return a, nil
}

// Ship marks a paid order shipped, and removes its stock from the reserved quantity in the
// same transaction.
func (s *Store) Ship(ctx context.Context, id string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Ship(id)
		return err
	})
	return answerOrError(a, err)
}

// Ship is Store.Ship within this transaction.
func (t *Tx) Ship(id string) (Answer, error) {
	a, err := t.changeStatus(id, Paid, Shipped, kindShip, removeReserved)
	if err != nil {
		return "", fmt.Errorf("ship order %q: %w", id, err)
	}
	return a, nil
}

// Confirm marks a shipped order confirmed: the customer has received it.
func (s *Store) Confirm(ctx context.Context, id string) (a Answer, err error) {
	err = s.Checkout(ctx, func(t *Tx) error {
		a, err = t.Confirm(id)
		return err
	})
	return answerOrError(a, err)
}

// Confirm is Store.Confirm within this transaction.
func (t *Tx) Confirm(id string) (Answer, error) {
	a, err := t.changeStatus(id, Shipped, Confirmed, "", nil)
	if err != nil {
		return "", fmt.Errorf("confirm order %q: %w", id, err)
	}
	return a, nil
}

// answerOrError drops the answer of a transaction that was not committed.
func answerOrError(a Answer, err error) (Answer, error) {
	if err != nil {
		return "", err
	}
	return a, nil
}

// changeStatus changes an order's status from one value to the next, and moves its stock.
func (t *Tx) changeStatus(id string, from, to Status, k kind, stock func(*gorm.DB, map[string][]orderclose.Release) error) (Answer, error) {
	won, err := t.compareAndSet(id, from, to, "")
	if err == nil && !won {
		return t.refusal(id, from)
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

// compareAndSet is the compare-and-set of the status, like the compare-and-set of a close. It
// reports whether it changed the row.
func (t *Tx) compareAndSet(id string, from, to Status, set string, args ...any) (bool, error) {
	if orderclose.ValidateID(id) != nil {
		return false, nil
	}
	args = append(append([]any{to}, args...), id, from)
	// The plus keeps SQLite from using the index on status; other databases ignore it.
	res := t.tx.Exec("UPDATE orders SET status = ?, version = version + 1"+set+" WHERE id = ? AND +status = ?", args...)
	return res.RowsAffected == 1, res.Error
}

// status returns the status of an order and the payment that paid it.
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

// refusal returns the reason why an order could not leave a status.
func (t *Tx) refusal(id string, from Status) (Answer, error) {
	st, _, err := t.status(id)
	switch {
	case errors.Is(err, ErrNoOrder):
		return NotFound, nil
	case err != nil:
		return "", err
	case st == from:
		// The order reached this status after the UPDATE, which did not find it.
		return "", fmt.Errorf("%w: the order has just become %v", orderclose.ErrContended, st)
	}
	return refusal(st, from), nil
}

// removeReserved removes the stock of shipped orders from the reserved quantity, in SKU order.
// It must be the last statement of its transaction.
func removeReserved(tx *gorm.DB, released map[string][]orderclose.Release) error {
	for _, releases := range released { // a single order
		for _, r := range releases {
			res := tx.Exec("UPDATE stock SET reserved = reserved - ? WHERE sku_id = ? AND reserved >= ?", r.Quantity, r.SKU, r.Quantity)
			if err := expectRows(res, 1); err != nil {
				return fmt.Errorf("remove %d of SKU %q from the reserved stock: the stock has no such SKU, or less is reserved than ordered: %w",
					r.Quantity, r.SKU, err)
			}
		}
	}
	return nil
}

// PutStock sets the available quantity of a SKU, zero or more. The reserved quantity stays.
func (s *Store) PutStock(ctx context.Context, sku string, available int64) error {
	err := orderclose.ValidateID(sku)
	if err == nil && available < 0 {
		err = fmt.Errorf("the quantity %d is below zero", available) // not every server checks it
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

// Stock is the stock of one SKU: the quantity that can be ordered, and the quantity that
// unpaid and paid orders hold.
type Stock struct {
	SKU                 string
	Available, Reserved int64
}

// ReadStock reads the stock of a SKU. ok is false if the stock has no row for the SKU.
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
