package shopdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/producer"
)

// reserve takes the stock of the items, in SKU order.
func (t *Tx) reserve(items []Item) error {
	return eachSKU(items, func(sku string, quantity int64) error {
		n, err := t.exec("UPDATE stock SET available = available - ?, reserved = reserved + ? WHERE sku_id = ? AND available >= ?",
			quantity, quantity, sku, quantity)
		if err == nil && n == 0 {
			err = fmt.Errorf("%d of SKU %q: %w", quantity, sku, ErrOutOfStock)
		}
		return err
	})
}

// Reasons why an order no longer holds its stock. Each is the last part of the key of a row of
// the ledger; the closer's reason is close.
const (
	kindCancel = "cancel"
	kindShip   = "ship"
)

// releaseStock ends the reservation of an order's stock, and makes the stock available again
// unless it was shipped. The unique key of the ledger's rows ensures that it happens once. It
// must be the last change of its transaction.
func (t *Tx) releaseStock(id, kind string) error {
	items, err := t.items(id)
	if err != nil {
		return err
	}
	now, err := t.Now()
	if err != nil {
		return err
	}
	if err := eachSKU(items, func(sku string, quantity int64) error {
		_, err := t.exec("INSERT INTO stock_ledger (order_id, sku_id, kind, quantity, created_at) VALUES (?, ?, ?, ?, ?)",
			id, sku, kind, quantity, t.sql.time(now))
		return err
	}); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	set := "reserved = reserved - ?"
	if kind == kindCancel {
		set = "available = available + ?, " + set
	}
	return eachSKU(items, func(sku string, quantity int64) error {
		args := []any{quantity, sku, quantity}
		if kind == kindCancel {
			args = append([]any{quantity}, args...)
		}
		n, err := t.exec("UPDATE stock SET "+set+" WHERE sku_id = ? AND reserved >= ?", args...)
		if err == nil && n == 0 {
			err = errors.New("the stock has no such SKU, or less is reserved than ordered")
		}
		if err != nil {
			return fmt.Errorf("release %d of SKU %q: %w", quantity, sku, err)
		}
		return nil
	})
}

// items reads the lines of an order and locks them: another transaction may be removing one, and
// returns its stock itself.
func (t *Tx) items(id string) (items []Item, err error) {
	query := "SELECT sku_id, quantity FROM order_items WHERE order_id = ?"
	switch t.sql.name {
	case producer.MySQL:
		query += " LOCK IN SHARE MODE"
	case producer.Postgres:
		query += " FOR SHARE"
	case producer.SQLite: // no row locks, and one write transaction at a time
	}
	rows, err := t.run.QueryContext(t.ctx, query, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i Item
		if err := rows.Scan(&i.SKU, &i.Quantity); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, rows.Err()
}

// eachSKU calls do for each SKU of the items with its total quantity, in SKU order, until do
// returns an error.
func eachSKU(items []Item, do func(sku string, quantity int64) error) error {
	sums := map[string]int64{}
	for _, i := range items {
		sums[i.SKU] += i.Quantity
	}
	for _, sku := range slices.Sorted(maps.Keys(sums)) {
		if err := do(sku, sums[sku]); err != nil {
			return err
		}
	}
	return nil
}

// PutStock sets the available quantity of a SKU, zero or more. The reserved quantity stays.
func (o *Orders) PutStock(ctx context.Context, sku string, available int64) error {
	err := orderclose.ValidateID(sku)
	if err == nil && available < 0 {
		err = fmt.Errorf("the quantity %d is below zero", available) // not every server checks it
	}
	if err == nil {
		update := " ON DUPLICATE KEY UPDATE available = VALUES(available)"
		if o.sql.name != producer.MySQL {
			update = " ON CONFLICT (sku_id) DO UPDATE SET available = excluded.available"
		}
		err = o.Checkout(ctx, func(t *Tx) error {
			_, err := t.exec("INSERT INTO stock (sku_id, available, reserved) VALUES (?, ?, 0)"+update, sku, available)
			return err
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
func (o *Orders) ReadStock(ctx context.Context, sku string) (st Stock, ok bool, err error) {
	err = o.query(ctx, func(t *Tx) error {
		return t.run.QueryRowContext(ctx, "SELECT sku_id, available, reserved FROM stock WHERE sku_id = ?", sku).Scan(&st.SKU, &st.Available, &st.Reserved)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Stock{}, false, nil
	case err != nil:
		return Stock{}, false, fmt.Errorf("read the stock of SKU %q: %w", sku, err)
	}
	return st, true, nil
}
