package read

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/money"
	"github.com/orderclose/orderclose/internal/wire"
)

// Reader reads orders and what was done with them, and shares out the rows of the outboxes.
type Reader struct{ *closetx.Closer }

// OrderHistory has the rows of one order in the tables of the pipeline, and in the tables of
// orders and lines. Its parts are read one after the other, so the order may change in between.
// Of the shop's own tables it has only the mapped columns, and no payment time.
type OrderHistory struct {
	At            time.Time           `json:"at"`    // the database's clock
	Order         *OrderRow           `json:"order"` // nil: the database has no such order, or no orders at all
	Items         []ItemRow           `json:"items"`
	Receipt       *closetx.ReceiptRow `json:"receipt"` // nil: the order has no receipt
	Ledger        []LedgerRow         `json:"ledger"`
	LatePayments  []money.LatePayment `json:"late_payments,omitempty"`
	PendingEvents []PendingRow        `json:"outgoing"` // events that are not published yet
	// PendingSchedules are the order's rows in the schedule outbox: not yet published.
	PendingSchedules []PendingRow `json:"unscheduled,omitempty"`
	More             []string     `json:"more,omitempty"` // of which rows the order has more than the 1,000 that were read
}

const (
	// most bounds how many rows of an order are read of each table, and oneMore ends such a SELECT.
	most    = 1000
	oneMore = " LIMIT 1001"
)

// upToMost leaves out the rows beyond most, and notes that.
func upToMost[T any](history *OrderHistory, rows *[]T, what string) {
	if len(*rows) > most {
		*rows = (*rows)[:most]
		history.More = append(history.More, fmt.Sprintf("%s: there are more than %d", what, most))
	}
}

// Known reports whether the database has anything of the order.
func (s OrderHistory) Known() bool {
	return s.Order != nil || len(s.Items)+len(s.Ledger)+len(s.LatePayments)+len(s.PendingEvents)+len(s.PendingSchedules) > 0 || s.Receipt != nil
}

// OrderRow is a row of the table orders.
type OrderRow struct {
	ID       string `json:"order_id"`
	Category string `json:"category"`
	Status   Status `json:"status"`
	State    string `json:"state"` // the name of the status
	// Meaning is what the shop's own status means, such as unpaid; empty in the reference schema,
	// where State says it.
	Meaning   string    `json:"meaning,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	Due       time.Time `json:"due_at"` // in the year 9999: never
	// Attributes has those of Mapping.Attributes that the row has. Numbers have the type json.Number.
	Attributes map[string]any `json:"attributes,omitempty"`
	PaidAt     time.Time      `json:"paid_at,omitzero"`
	ClosedAt   time.Time      `json:"closed_at,omitzero"`
	Version    int64          `json:"version"`
}

// ItemRow is one line of the order.
type ItemRow struct {
	Line     int    `json:"line"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// LedgerRow is the quantity of a SKU that moved: a row of the table stock_ledger, or what a receipt says that the close returned.
type LedgerRow struct {
	SKU      string    `json:"sku"`
	Kind     string    `json:"kind"`
	Quantity int64     `json:"quantity"`
	At       time.Time `json:"at"`
}

// PendingRow is a row of an outbox, or an event that waits for the receiver of the webhook.
type PendingRow struct {
	ID   int64     `json:"id"`
	At   time.Time `json:"at"` // when it was written, or when the webhook took it
	Type string    `json:"type,omitempty"`
	// Webhook says that the event waits for the receiver of the webhook, Attempts how often it was sent, and Error why the last
	// attempt that has ended has failed.
	Webhook  bool   `json:"webhook,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
}

// OrderHistory reads everything about an order. An unknown order is no error.
func (s *Reader) OrderHistory(ctx context.Context, id string) (OrderHistory, error) {
	history := OrderHistory{Items: []ItemRow{}, Ledger: []LedgerRow{}, PendingEvents: []PendingRow{}}
	if err := orderclose.ValidateID(id); err != nil {
		return history, err
	}
	err := s.history(s.Gorm.WithContext(ctx), id, &history)
	return history, s.FailedTo(ctx, err, "read everything about order %q", id)
}

func (s *Reader) history(tx *gorm.DB, id string, history *OrderHistory) (err error) {
	if history.At, err = s.NowIn(tx); err != nil {
		return err
	}
	if !s.OwnStore() {
		if err := s.orderAndLines(tx, id, history); err != nil {
			return err
		}
	}
	if err := closetx.EachReceipt(tx, []string{id}, func(_ string, r *closetx.ReceiptRow) { history.Receipt = r }); err != nil {
		return err
	}
	err = eachLedgerRow(tx, []string{id}, oneMore, func(_ string, l LedgerRow) {
		if l.Kind == closetx.KindClose && len(s.Q.M.Stock) == 0 {
			l.Kind = closetx.KindRelease
		}
		history.Ledger = append(history.Ledger, l)
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(history.Ledger, func(a, b LedgerRow) int { return a.At.Compare(b.At) })
	if history.LatePayments, err = money.LatePayments(tx, "WHERE order_id = ? ORDER BY id"+oneMore, id); err != nil {
		return err
	}
	err = s.pending(tx, id, history)
	upToMost(history, &history.Items, "lines")
	upToMost(history, &history.Ledger, "moves of stock")
	upToMost(history, &history.LatePayments, "late payments")
	upToMost(history, &history.PendingEvents, "events in the outbox")
	upToMost(history, &history.PendingSchedules, "schedules in the outbox")
	return err
}

// pending reads the first rows of an order in the outboxes and of the webhook.
func (s *Reader) pending(tx *gorm.DB, id string, history *OrderHistory) (err error) {
	// No index has the order's id: these tables hold only rows that are not published yet.
	const events, schedules = "SELECT id, created_at, COALESCE(kind, '') FROM outbox_events", "SELECT id, created_at, '' FROM outbox_schedules"
	for query, to := range map[string]*[]PendingRow{events: &history.PendingEvents, schedules: &history.PendingSchedules} {
		rows, err := db.RowsOf(db.Own(tx), query+" WHERE order_id = ? ORDER BY id"+oneMore, []any{id},
			func(r *PendingRow) []any { return []any{&r.ID, db.TimeInto(&r.At), &r.Type} })
		if err != nil {
			return err
		}
		*to = append(*to, rows...)
	}
	return db.EachRow(tx, "SELECT id, taken_ms, CASE WHEN OCTET_LENGTH(payload) <= ? THEN payload ELSE '' END, attempts, error FROM orderclose_webhook_events"+
		" WHERE order_id = ? ORDER BY id"+oneMore, []any{wire.MaxRecordBytes, id},
		func(rows *sql.Rows) error {
			r := PendingRow{Webhook: true}
			var taken int64
			var payload string
			if err := rows.Scan(&r.ID, &taken, &payload, &r.Attempts, &r.Error); err != nil {
				return err
			}
			var event struct{ Type string }
			_ = json.Unmarshal([]byte(payload), &event) // another payload than a CloudEvent may have no type
			r.At, r.Type = time.UnixMilli(taken).UTC(), event.Type
			history.PendingEvents = append(history.PendingEvents, r)
			return nil
		})
}

// orderAndLines reads an order and its lines. With shards it reads the first table that has the order.
func (s *Reader) orderAndLines(tx *gorm.DB, id string, history *OrderHistory) error {
	arg, ok := s.Q.IDArg(id)
	if !ok {
		return nil
	}
	candidates, err := s.Everywhere(tx.Statement.Context)
	if err != nil {
		return err
	}
	for n := 0; history.Order == nil; n++ {
		t := candidates.Nth(id, n)
		if t == nil {
			return nil
		}
		err := db.EachRow(tx, s.orderQuery(t), []any{arg}, func(rows *sql.Rows) error { return s.scanOrder(rows, id, history) })
		if err := db.OrNoRow(err); err != nil {
			return err
		}
		if history.Order != nil && t.Lines != "" {
			return s.historyLines(tx, t, arg, history)
		}
	}
	return nil
}

// orderQuery writes the SELECT of one order, without a lock.
func (s *Reader) orderQuery(t *db.Table) string {
	q := s.Q
	return fmt.Sprintf("SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s FROM %s WHERE %s = ?", q.M.ID.Read(q.M.ID.Column),
		q.Category(), mapping.Quote(q.M.Status.Column), db.OrElse(q.M.Created.Name(), "NULL"), q.DueOf(t.Name),
		db.OrElse(q.M.PaidAt.Name(), "NULL"), db.OrElse(db.First(q.M.ClosedAt).Name(), "NULL"),
		"COALESCE("+db.OrElse(q.M.Version, "0")+", 0)", q.Attributes(), mapping.Quote(t.Name), mapping.Quote(q.M.ID.Column))
}

// scanOrder reads an order's row. In the shop's own tables, its State is the shop's own value of the
// status, and its Status is -1.
func (s *Reader) scanOrder(rows *sql.Rows, id string, history *OrderHistory) error {
	o := OrderRow{ID: id, Status: -1}
	var found string
	var created, due, paid, closed, attributes any
	err := rows.Scan(&found, db.Nullable(&o.Category), db.Nullable(&o.State), &created, &due, &paid, &closed, &o.Version, &attributes)
	if err != nil || found != id { // the collation may match another order
		return err
	}
	if o.Meaning = s.Q.M.Status.Meaning(o.State); !s.Mapped {
		n, _ := strconv.Atoi(o.State)
		o.Status, o.State, o.Meaning = Status(n), Status(n).String(), ""
	}
	for _, t := range []struct {
		codec mapping.Codec
		value any
		to    *time.Time
	}{{s.Q.Created, created, &o.CreatedAt}, {s.Q.PaidAt, paid, &o.PaidAt}, {db.First(s.Q.ClosedAt), closed, &o.ClosedAt}} {
		if *t.to, _, err = t.codec.Decode(t.value); err != nil {
			return err
		}
	}
	if o.Due, err = s.Q.DecodeDue(due); err != nil {
		return err
	}
	if o.Attributes, err = s.Q.DecodeAttributes(attributes); err != nil {
		return err
	}
	history.Order = &o
	return nil
}

// historyLines reads the lines of an order. They are numbered from 1 in the order in which the
// database returns them.
func (s *Reader) historyLines(tx *gorm.DB, t *db.Table, id any, history *OrderHistory) error {
	return db.EachRow(tx, t.Lines+oneMore, append([]any{[]any{id}}, s.Q.LineWhere.Args...), func(rows *sql.Rows) error {
		i := ItemRow{Line: len(history.Items) + 1}
		var quantity sql.NullInt64
		var location sql.NullString
		err := rows.Scan(append([]any{new(any), db.Nullable(&i.SKU), &quantity, &location}, db.Skipped(max(len(s.Q.M.Stock)-1, 0))...)...)
		i.SKU, i.Quantity = closetx.Located(i.SKU, location), quantity.Int64
		history.Items = append(history.Items, i)
		return err
	})
}

// eachLedgerRow calls each for the stock of orders that moved, with the order's id. A receipt says what its close returned. The rows of the
// table stock_ledger say the rest; those of one order are sorted by SKU and kind. limit ends the SELECT, or is empty.
func eachLedgerRow(tx *gorm.DB, ids []string, limit string, each func(id string, l LedgerRow)) error {
	const query = "SELECT order_id, returned, '', 0, closed_at FROM receipts WHERE order_id IN ? AND returned IS NOT NULL" +
		" UNION ALL SELECT order_id, sku_id, kind, quantity, created_at FROM stock_ledger WHERE order_id IN ? ORDER BY 1, 2, 3"
	return db.Wrap(db.EachRow(tx, query+limit, []any{ids, ids}, func(rows *sql.Rows) error {
		var id string
		var l LedgerRow
		if err := rows.Scan(&id, &l.SKU, &l.Kind, &l.Quantity, db.TimeInto(&l.At)); err != nil {
			return err
		}
		if l.Kind != "" {
			each(id, l)
			return nil
		}
		all, err := returnedRows(l.SKU, l.At)
		for _, l := range all {
			each(id, l)
		}
		return err
	}), "ledger")
}

// returnedRows returns one row for each SKU in the column returned of a receipt, sorted by SKU. at is the time of the close.
func returnedRows(returned string, at time.Time) (all []LedgerRow, err error) {
	quantities := map[string]int64{}
	if err = json.Unmarshal([]byte(returned), &quantities); err != nil {
		return nil, fmt.Errorf("column returned is %q, and should be JSON of quantities by SKU: %w", returned, err)
	}
	for _, sku := range slices.Sorted(maps.Keys(quantities)) {
		all = append(all, LedgerRow{sku, closetx.KindClose, quantities[sku], at})
	}
	return all, nil
}

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
