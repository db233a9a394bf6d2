package shopdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
)

// Status is the state of an order, as the column orders.status stores it.
type Status int8

// An order begins unpaid and leaves that status once: it becomes paid, closed or cancelled. A
// paid order becomes shipped, and a shipped order confirmed. Unpaid and paid orders hold
// reserved stock; other orders hold none.
const (
	Unpaid    Status = 0
	Paid      Status = 1
	Closed    Status = 2
	Cancelled Status = 3
	Shipped   Status = 4
	Confirmed Status = 5
)

var statusNames = [...]string{"unpaid", "paid", "closed", "cancelled", "shipped", "confirmed"}

// String returns the name of the status: unpaid, paid, closed and so on.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("status %d", int8(s))
	}
	return statusNames[s]
}

// Errors of a checkout. Compare with errors.Is.
var (
	// ErrOutOfStock: fewer pieces of a SKU are available than the order needs.
	ErrOutOfStock = errors.New("out of stock")
	// ErrDuplicateOrder: an order with this id exists.
	ErrDuplicateOrder = errors.New("the order exists already")
	// ErrBadItem: a line has no SKU, or a quantity below one.
	ErrBadItem = errors.New("a line needs a SKU and a quantity of at least one")
	// ErrBadPayment: the id of a payment is not valid.
	ErrBadPayment = errors.New("a payment needs an id of at most 64 bytes")
	// ErrNoOrder: the database has no order with this id.
	ErrNoOrder = errors.New("the order does not exist")
)

// Item is one line of an order. Several lines may have the same SKU.
type Item struct {
	SKU      string
	Quantity int64
}

// CreateOrder writes an unpaid order with its lines and reserves their stock, in one
// transaction. It rounds the due time up to the millisecond, as the order's record does. The
// error wraps ErrOutOfStock, ErrDuplicateOrder, ErrBadItem, an error of package orderclose
// about orders, or an error of Checkout.
func (o *Orders) CreateOrder(ctx context.Context, order orderclose.Order, items []Item) error {
	return o.Checkout(ctx, func(t *Tx) error { return t.CreateOrder(order, items) })
}

// CreateOrder is Orders.CreateOrder within this transaction.
func (t *Tx) CreateOrder(o orderclose.Order, items []Item) error {
	if err := checkOrder(o, items); err != nil {
		return fmt.Errorf("create order: %w", err)
	}
	err := t.insertOrder(o, items)
	if err == nil {
		err = t.reserve(items)
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

func (t *Tx) insertOrder(o orderclose.Order, items []Item) error {
	_, err := t.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, ?, ?, ?, ?, 1)",
		o.ID, o.Category, Unpaid, t.sql.time(o.CreatedAt), t.sql.time(orderclose.CeilMilli(o.Due)))
	if faultOf(err) == faultDuplicate {
		return ErrDuplicateOrder
	}
	if err != nil || len(items) == 0 {
		return err
	}
	var lines []any
	for i, item := range items {
		lines = append(lines, o.ID, i+1, item.SKU, item.Quantity)
	}
	_, err = t.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (?, ?, ?, ?)"+strings.Repeat(", (?, ?, ?, ?)", len(items)-1), lines...)
	return err
}

// View is an order at a point in time.
type View struct {
	orderclose.Order
	Status  Status
	Version int64     // grows by one with each change of status
	At      time.Time // the database's clock at the read
}

// PastDue reports whether the order is unpaid and was due at the read.
func (v View) PastDue() bool { return v.Status == Unpaid && !v.Due.After(v.At) }

// ViewOrder reads an order. The error wraps ErrNoOrder or an error of Checkout.
func (o *Orders) ViewOrder(ctx context.Context, id string) (v View, err error) {
	err = o.query(ctx, func(t *Tx) error {
		v, err = t.ViewOrder(id)
		return err
	})
	return v, err
}

// ViewOrder is Orders.ViewOrder within this transaction.
func (t *Tx) ViewOrder(id string) (v View, err error) {
	err = sql.ErrNoRows
	if orderclose.ValidateID(id) == nil { // for another id the database might match another order
		query, args := t.sql.viewQuery()
		v, err = scanView(t.run.QueryRowContext(t.ctx, query+"id = ?", append(args, id)...))
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoOrder
	}
	if err != nil {
		return v, fmt.Errorf("read order %q: %w", id, err)
	}
	return v, nil
}

// viewQuery returns a query of views without its condition, and its arguments.
func (d dialect) viewQuery() (query string, args []any) {
	now, args := d.now()
	return "SELECT id, category, status, version, " + d.millis("created_at") + ", " + d.millis("expire_at") + ", " + d.millis(now) + " FROM orders WHERE ", args
}

// scanView reads a row of viewQuery.
func scanView(row interface{ Scan(...any) error }) (v View, err error) {
	var created, due, at int64
	err = row.Scan(&v.ID, &v.Category, &v.Status, &v.Version, &created, &due, &at)
	v.CreatedAt, v.Due, v.At = time.UnixMilli(created).UTC(), time.UnixMilli(due).UTC(), time.UnixMilli(at).UTC()
	return v, err
}
