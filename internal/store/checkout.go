package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"orderclose"
)

// What can be wrong with an order at checkout. Compare with errors.Is.
var (
	// ErrOutOfStock: there is less of a SKU than the order wants, or none.
	ErrOutOfStock = errors.New("out of stock")
	// ErrDuplicateOrder: an order of that id exists.
	ErrDuplicateOrder = errors.New("the order exists already")
	// ErrBadItem: a line without SKU, or with a quantity below one.
	ErrBadItem = errors.New("a line needs a SKU and a quantity of at least one")
)

// Item is one line of an order. Several lines may name one SKU.
type Item struct {
	SKU      string
	Quantity int64
}

// Answer is what Pay and Cancel say of an order.
type Answer string

const (
	NowPaid          Answer = "paid"              // it was unpaid and is paid now
	NowCancelled     Answer = "cancelled"         // it was unpaid and is cancelled now
	AlreadyPaid      Answer = "already_paid"      // it was paid before, and is on its way
	AlreadyClosed    Answer = "already_closed"    // it was closed first
	AlreadyCancelled Answer = "already_cancelled" // it was cancelled first
	NotFound         Answer = "not_found"         // there is no such order
)

// CreateOrder writes an unpaid order with its lines and reserves their stock, in
// one transaction. The due time is rounded up to the millisecond, as it is in
// the order's record. The error wraps ErrOutOfStock, ErrDuplicateOrder,
// ErrBadItem, one of package orderclose's about orders, or
// orderclose.ErrUnavailable.
func (s *Store) CreateOrder(ctx context.Context, o orderclose.Order, items []Item) error {
	if err := checkOrder(o, items); err != nil {
		return fmt.Errorf("create order: %w", err)
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.insertOrder(tx, o, items); err != nil {
			return err
		}
		return reserve(tx, items)
	})
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

// Pay marks an order paid unless it is closed, cancelled or paid already. Past
// its due time it still does: a payment provider's word is taken until the order
// is closed.
func (s *Store) Pay(ctx context.Context, id string) (Answer, error) {
	var a Answer
	err := s.transact(ctx, func(tx *gorm.DB) (err error) {
		a, err = s.leaveUnpaid(tx, id, Paid)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("pay order %q: %w", id, err)
	}
	return a, nil
}

// Cancel marks an order cancelled unless it is paid, closed or cancelled
// already, and gives its stock back in the same transaction.
func (s *Store) Cancel(ctx context.Context, id string) (Answer, error) {
	var a Answer
	err := s.transact(ctx, func(tx *gorm.DB) (err error) {
		if a, err = s.leaveUnpaid(tx, id, Cancelled); err != nil || a != NowCancelled {
			return err
		}
		now, err := s.now(tx)
		if err != nil {
			return err
		}
		released, err := s.recordLines(tx, []string{id}, kindCancel, now)
		if err != nil {
			return err
		}
		return s.moveStock(tx, released)
	})
	if err != nil {
		return "", fmt.Errorf("cancel order %q: %w", id, err)
	}
	return a, nil
}

// leaveUnpaid is the same compare-and-set as a close's, from the other side.
func (s *Store) leaveUnpaid(tx *gorm.DB, id string, to Status) (Answer, error) {
	if orderclose.ValidateID(id) != nil {
		return NotFound, nil
	}
	paidAt := any(nil)
	if to == Paid {
		paidAt = s.dialect.now()
	}
	res := tx.Exec("UPDATE orders SET status = ?, paid_at = ?, version = version + 1 WHERE id = ? AND +status = ?",
		to, paidAt, id, Unpaid)
	if res.Error != nil {
		return "", res.Error
	}
	if res.RowsAffected == 1 {
		return map[Status]Answer{Paid: NowPaid, Cancelled: NowCancelled}[to], nil
	}
	return statusAnswer(tx, id)
}

// statusAnswer says why an order could not leave the unpaid state.
func statusAnswer(tx *gorm.DB, id string) (Answer, error) {
	var found []Status
	if err := tx.Raw("SELECT status FROM orders WHERE id = ?", id).Scan(&found).Error; err != nil {
		return "", err
	}
	if len(found) == 0 {
		return NotFound, nil
	}
	switch found[0] {
	case Unpaid:
		return "", errors.New("it is unpaid and could not be changed")
	case Closed:
		return AlreadyClosed, nil
	case Cancelled:
		return AlreadyCancelled, nil
	default:
		return AlreadyPaid, nil
	}
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

type stockRow struct {
	SKU       string `gorm:"column:sku_id;primaryKey"`
	Available int64
	Reserved  int64
}

// TableName implements gorm's Tabler.
func (stockRow) TableName() string { return "stock" }
