package store

import (
	"context"
	"database/sql"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// OrderHistory has the rows of one order in the tables of the pipeline, and in the tables of
// orders and lines. Its parts are read one after the other, so the order may change in between.
// Of the shop's own tables it has only the mapped columns, and no payment time.
type OrderHistory struct {
	At            time.Time    `json:"at"`    // the database's clock
	Order         *OrderRow    `json:"order"` // nil: the database has no such order
	Items         []ItemRow    `json:"items"`
	Receipt       *ReceiptRow  `json:"receipt"` // nil: the order has no receipt
	Ledger        []LedgerRow  `json:"ledger"`
	PendingEvents []PendingRow `json:"outgoing"` // events that are not published yet
	// PendingSchedules are the order's rows in the schedule outbox: not yet published.
	PendingSchedules []PendingRow `json:"unscheduled,omitempty"`
}

// Known reports whether the database has anything of the order.
func (s OrderHistory) Known() bool {
	return s.Order != nil || len(s.Items)+len(s.Ledger)+len(s.PendingEvents)+len(s.PendingSchedules) > 0 || s.Receipt != nil
}

// OrderRow is a row of the table orders.
type OrderRow struct {
	ID       string `json:"order_id"`
	Category string `json:"category"`
	Status   Status `json:"status"`
	State    string `json:"state"` // the name of the status
	// Meaning is what the shop's own status means, such as unpaid; empty in the reference schema,
	// where State says it.
	Meaning   string     `json:"meaning,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	Due       time.Time  `json:"due_at"`
	PaidAt    *time.Time `json:"paid_at,omitempty"`
	ClosedAt  *time.Time `json:"closed_at,omitempty"`
	Version   int64      `json:"version"`
}

// ItemRow is one line of the order.
type ItemRow struct {
	Line     int    `json:"line"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// ReceiptRow is the receipt of the order's close.
type ReceiptRow struct {
	Verdict    orderclose.Verdict `json:"verdict"`
	Due        time.Time          `json:"due_at"`
	ClosedAt   time.Time          `json:"closed_at"`
	Path       orderclose.Path    `json:"path"`
	Attempts   int                `json:"attempts"`
	LatenessMS int64              `json:"lateness_ms"`
}

// LedgerRow is a row of the stock ledger.
type LedgerRow struct {
	SKU      string    `json:"sku"`
	Kind     string    `json:"kind"`
	Quantity int64     `json:"quantity"`
	At       time.Time `json:"at"`
}

// PendingRow is a row of an outbox.
type PendingRow struct {
	ID int64     `json:"id"`
	At time.Time `json:"at"`
}

// OrderHistory reads everything about an order. An unknown order is no error. The error wraps
// orderclose.ErrUnavailable if the database failed.
func (s *Store) OrderHistory(ctx context.Context, id string) (OrderHistory, error) {
	history := OrderHistory{Items: []ItemRow{}, Ledger: []LedgerRow{}, PendingEvents: []PendingRow{}}
	if err := orderclose.ValidateID(id); err != nil {
		return history, err
	}
	err := s.history(s.gorm.WithContext(ctx), id, &history)
	return history, s.failed(ctx, err, "read everything about order %q", id)
}

func (s *Store) history(tx *gorm.DB, id string, history *OrderHistory) (err error) {
	if history.At, err = s.now(tx); err != nil {
		return err
	}
	type part struct {
		query string
		scan  func(*sql.Rows) error
	}
	own := []part{
		{"SELECT category, status, created_at, expire_at, paid_at, closed_at, version FROM orders WHERE id = ?", func(rows *sql.Rows) error {
			o := OrderRow{ID: id}
			var paid, closed time.Time
			err := rows.Scan(&o.Category, &o.Status, timeInto(&o.CreatedAt), timeInto(&o.Due), timeInto(&paid), timeInto(&closed), &o.Version)
			o.State, o.PaidAt, o.ClosedAt = o.Status.String(), some(paid), some(closed)
			history.Order = &o
			return err
		}},
		{"SELECT line_no, sku_id, quantity FROM order_items WHERE order_id = ? ORDER BY line_no", func(rows *sql.Rows) error {
			var i ItemRow
			err := rows.Scan(&i.Line, &i.SKU, &i.Quantity)
			history.Items = append(history.Items, i)
			return err
		}},
	}
	if s.mapped {
		own = nil
		if err := s.mappedHistory(tx, id, history); err != nil {
			return err
		}
	}
	for _, part := range append(own, []part{
		{"SELECT verdict, due, closed_at, path, attempts, lateness_ms FROM receipts WHERE order_id = ?", func(rows *sql.Rows) error {
			var r ReceiptRow
			err := rows.Scan(&r.Verdict, timeInto(&r.Due), timeInto(&r.ClosedAt), &r.Path, &r.Attempts, &r.LatenessMS)
			history.Receipt = &r
			return err
		}},
		{"SELECT sku_id, kind, quantity, created_at FROM stock_ledger WHERE order_id = ? ORDER BY created_at, sku_id, kind", func(rows *sql.Rows) error {
			var l LedgerRow
			err := rows.Scan(&l.SKU, &l.Kind, &l.Quantity, timeInto(&l.At))
			history.Ledger = append(history.Ledger, l)
			return err
		}},
		// No index has the order's id: the table holds only rows that are not published yet.
		{"SELECT id, created_at FROM outbox_events WHERE order_id = ? ORDER BY id", pendingRows(&history.PendingEvents)},
		{"SELECT id, created_at FROM outbox_schedules WHERE order_id = ? ORDER BY id", pendingRows(&history.PendingSchedules)},
	}...) {
		if err := eachRow(tx, part.query, []any{id}, part.scan); err != nil {
			return err
		}
	}
	return nil
}

// pendingRows returns a function that appends each row of an outbox.
func pendingRows(to *[]PendingRow) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var o PendingRow
		err := rows.Scan(&o.ID, timeInto(&o.At))
		*to = append(*to, o)
		return err
	}
}

func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// eachRow calls each for each row of a query.
func eachRow(tx *gorm.DB, query string, args []any, each func(*sql.Rows) error) error {
	rows, err := tx.Raw(query, args...).Rows()
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
