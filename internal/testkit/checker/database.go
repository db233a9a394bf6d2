package checker

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Values of orders.status.
const (
	unpaid = iota
	paid
	closed
	cancelled
	shipped
	confirmed
)

// tables is the content of the database.
type tables struct {
	orders   map[string]order
	items    map[string]map[string]int64 // by order and SKU, summed over the lines
	receipts map[string]receipt
	ledger   map[string]map[entry]int64 // by order
	stock    map[string]stock
	outbox   map[string][][]byte // by order: the events in outbox_events, as stored
	added    map[string]int      // by order: its rows in outbox_schedules
	late     map[payment]bool    // the rows of late_payments
	hasLate  map[string]bool     // by order: whether it has such a row
}

type payment struct{ order, id string }

type order struct {
	status   int
	due      time.Time
	paidAt   time.Time // zero: it was not paid
	payment  string    // the payment that paid it; "": none, or the pipeline has marked it as paid
	closedAt time.Time
}

type receipt struct {
	due, closedAt time.Time
	path          string
	lateness      time.Duration
}

type entry struct{ sku, kind string }

type stock struct{ available, reserved int64 }

func readDatabase(ctx context.Context, db *sql.DB) (*tables, error) {
	t := &tables{
		orders: map[string]order{}, items: map[string]map[string]int64{}, receipts: map[string]receipt{},
		ledger: map[string]map[entry]int64{}, stock: map[string]stock{}, outbox: map[string][][]byte{}, added: map[string]int{},
		late: map[payment]bool{}, hasLate: map[string]bool{},
	}
	for _, table := range []struct {
		query string
		row   func(scan func(...any) error) error
	}{
		{"SELECT id, status, expire_at, paid_at, closed_at, COALESCE(payment_id, '') FROM orders", t.addOrder},
		{"SELECT order_id, sku_id, quantity FROM order_items", t.addItem},
		{"SELECT order_id, due, closed_at, path, lateness_ms, COALESCE(returned, '{}') FROM receipts", t.addReceipt},
		{"SELECT order_id, sku_id, kind, quantity FROM stock_ledger", t.addEntry},
		{"SELECT sku_id, available, reserved FROM stock", t.addStock},
		{"SELECT order_id, payload FROM outbox_events", t.addEvent},
		{"SELECT order_id FROM outbox_schedules", t.addSchedule},
		{"SELECT order_id, payment_id FROM late_payments", t.addLate},
	} {
		if err := read(ctx, db, table.query, table.row); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// read calls row for each row of a query.
func read(ctx context.Context, db *sql.DB, query string, row func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return rows.Err()
}

func (t *tables) addOrder(scan func(...any) error) error {
	var id string
	var o order
	var due, paidAt, closedAt moment
	err := scan(&id, &o.status, &due, &paidAt, &closedAt, &o.payment)
	o.due, o.paidAt, o.closedAt = due.t, paidAt.t, closedAt.t
	t.orders[id] = o
	return err
}

func (t *tables) addItem(scan func(...any) error) error {
	var id, sku string
	var quantity int64
	err := scan(&id, &sku, &quantity)
	if t.items[id] == nil {
		t.items[id] = map[string]int64{}
	}
	t.items[id][sku] += quantity
	return err
}

func (t *tables) addReceipt(scan func(...any) error) error {
	var id string
	var r receipt
	var due, closedAt moment
	var ms int64
	var returned string
	err := scan(&id, &due, &closedAt, &r.path, &ms, &returned)
	r.due, r.closedAt, r.lateness = due.t, closedAt.t, time.Duration(ms)*time.Millisecond
	t.receipts[id] = r
	lines := map[string]int64{}
	if err == nil {
		err = json.Unmarshal([]byte(returned), &lines)
	}
	for sku, quantity := range lines {
		t.moved(id, entry{sku, "close"}, quantity)
	}
	return err
}

func (t *tables) addEntry(scan func(...any) error) error {
	var id string
	var e entry
	var quantity int64
	err := scan(&id, &e.sku, &e.kind, &quantity)
	t.moved(id, e, quantity)
	return err
}

// moved adds the stock of an order that moved.
func (t *tables) moved(id string, e entry, quantity int64) {
	if t.ledger[id] == nil {
		t.ledger[id] = map[entry]int64{}
	}
	t.ledger[id][e] += quantity
}

func (t *tables) addStock(scan func(...any) error) error {
	var sku string
	var s stock
	err := scan(&sku, &s.available, &s.reserved)
	t.stock[sku] = s
	return err
}

func (t *tables) addEvent(scan func(...any) error) error {
	var id string
	var payload []byte
	err := scan(&id, &payload)
	t.outbox[id] = append(t.outbox[id], payload)
	return err
}

func (t *tables) addSchedule(scan func(...any) error) error {
	var id string
	err := scan(&id)
	t.added[id]++
	return err
}

func (t *tables) addLate(scan func(...any) error) error {
	var p payment
	err := scan(&p.order, &p.id)
	t.late[p], t.hasLate[p.order] = true, true
	return err
}

// moment scans a time as either database returns it: a DATETIME in UTC, or milliseconds since
// 1970. NULL is the zero time.
type moment struct{ t time.Time }

// Scan implements sql.Scanner.
func (m *moment) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		m.t = time.Time{}
	case time.Time:
		m.t = v
	case int64:
		m.t = time.UnixMilli(v)
	default:
		return fmt.Errorf("a time as %T", v)
	}
	return nil
}
