package read

import (
	"context"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/money"
)

// The tables of receipts, and where their rows have the time and the event.
var (
	closeReceipts = receiptTable{"receipts", "closed_at", "''"}
	paidReceipts  = receiptTable{"paid_receipts", "paid_at", "payload"}
)

type receiptTable struct{ name, at, payload string }

// receipt is a row of a receiptTable.
type receipt struct {
	ReceiptKey
	payload string
}

// receiptsBetween returns up to limit receipts with a time in [from, to), at most 999. They begin behind after; the zero ReceiptKey
// begins with the first. last is the last receipt; zero: there is no further one.
func (s *Reader) receiptsBetween(tx *gorm.DB, in receiptTable, from, to time.Time, after ReceiptKey, limit int) (found []receipt, last ReceiptKey, err error) {
	if limit = min(limit, db.MaxIn); after.ClosedAt.IsZero() {
		after.ClosedAt = from
	}
	at := s.Dialect.Time(after.ClosedAt)
	found, err = db.RowsOf(db.Own(tx), "SELECT "+in.at+", order_id, "+in.payload+" FROM "+in.name+" WHERE "+in.at+" < ? AND "+in.at+" >= ?"+
		" AND ("+in.at+" > ? OR order_id > ?) ORDER BY "+in.at+", order_id LIMIT ?",
		[]any{s.Dialect.Time(to), at, at, after.OrderID, limit}, func(r *receipt) []any { return []any{db.TimeInto(&r.ClosedAt), &r.OrderID, &r.payload} })
	if len(found) == limit {
		last = found[limit-1].ReceiptKey
	}
	return found, last, err
}

// CountEvents returns how many orders were closed, and how many PayOrders marked as paid, in [from, to), and how many late payments were
// found then that nobody has resolved.
func (s *Reader) CountEvents(ctx context.Context, from, to time.Time) (closed, paid, late int64, err error) {
	span := []any{s.Dialect.Time(from), s.Dialect.Time(to)}
	err = s.Gorm.WithContext(ctx).Raw("SELECT (SELECT COUNT(*) FROM receipts WHERE closed_at >= ? AND closed_at < ?),"+
		" (SELECT COUNT(*) FROM paid_receipts WHERE paid_at >= ? AND paid_at < ?),"+
		" (SELECT COUNT(*) FROM late_payments WHERE resolved_at IS NULL AND found_at >= ? AND found_at < ?)",
		slices.Concat(span, span, span)...).Row().Scan(&closed, &paid, &late)
	return closed, paid, late, s.FailedTo(ctx, err, "count receipts")
}

// ClosedAgain writes the events of up to limit closes in [from, to) into the outbox again, in the order of the closes. It begins behind
// the close after, as receiptsBetween does. The receipt has the due time, the time of the close, the path, the attempts
// and the stock of an event. The order's row has the category, the version and the columns, as they are now. If the order has no row, the
// event has none of these three.
func (s *Reader) ClosedAgain(ctx context.Context, from, to time.Time, after ReceiptKey, limit int) (n int, last ReceiptKey, err error) {
	found, last, err := s.receiptsBetween(s.Gorm.WithContext(ctx), closeReceipts, from, to, after, limit)
	if err == nil && len(found) > 0 {
		err = s.closeEvents(ctx, found)
	}
	if err == nil {
		err = s.writeAgain(ctx, found)
	}
	return len(found), last, s.FailedTo(ctx, err, "write events of closes again, after %q", after.OrderID)
}

// closeEvents sets the payloads of closes.
func (s *Reader) closeEvents(ctx context.Context, closes []receipt) error {
	where, err := s.Everywhere(ctx)
	if err != nil {
		return err
	}
	reqs, all := make([]orderclose.CloseRequest, len(closes)), make([]string, len(closes))
	for i, k := range closes {
		reqs[i].OrderID, all[i] = k.OrderID, k.OrderID
	}
	ids, requests := s.Distinct(reqs)
	c := s.NewRows(s.Gorm.WithContext(ctx), requests, where)
	c.Locks = closetx.LockNothing
	if err := c.LockOrders(ids); err != nil {
		return err
	}
	receipts, returned := map[string]*closetx.ReceiptRow{}, closetx.Returns{}
	for _, id := range all {
		returned[id] = map[string]int64{}
	}
	if err := closetx.EachReceipt(c.Tx, all, func(id string, r *closetx.ReceiptRow) { receipts[id] = r }); err != nil {
		return err
	}
	if err := eachLedgerRow(c.Tx, all, "", func(id string, l LedgerRow) {
		if l.Kind == closetx.KindClose {
			returned[id][l.SKU] = l.Quantity
		}
	}); err != nil {
		return err
	}
	for i, k := range closes {
		row, r := c.Orders[k.OrderID], receipts[k.OrderID]
		if r == nil { // deleted meanwhile
			continue
		}
		closes[i].payload, err = closetx.EncodeKept(orderclose.OrderClosed{
			Type: s.Q.M.Event, OrderID: k.OrderID, Category: row.Category, Due: r.Due, ClosedAt: r.ClosedAt, Path: r.Path,
			Attempts: r.Attempts, Version: max(row.Version, 0), Columns: row.Columns,
		}, returned[k.OrderID], "")
		if err != nil {
			return err
		}
	}
	return nil
}

// PaidAgain is ClosedAgain for the events of orders that PayOrders marked as paid, from the copies in paid_receipts.
func (s *Reader) PaidAgain(ctx context.Context, from, to time.Time, after ReceiptKey, limit int) (n int, last ReceiptKey, err error) {
	found, last, err := s.receiptsBetween(s.Gorm.WithContext(ctx), paidReceipts, from, to, after, limit)
	if err == nil {
		err = s.writeAgain(ctx, found)
	}
	return len(found), last, s.FailedTo(ctx, err, "write events of payments again, after %q", after.OrderID)
}

// PaidLateAgain writes the events of the late payments that were found in [from, to) and that nobody has resolved, all at once: a person
// looks at each, so there are few.
func (s *Reader) PaidLateAgain(ctx context.Context, from, to time.Time) (n int, err error) {
	late, err := money.LatePayments(s.Gorm.WithContext(ctx), "WHERE resolved_at IS NULL AND found_at >= ? ORDER BY found_at, id", s.Dialect.Time(from))
	var events []receipt
	for _, p := range late {
		if err != nil || !p.FoundAt.Before(to) {
			break
		}
		var payload string
		payload, err = p.Event()
		events = append(events, receipt{ReceiptKey{p.FoundAt, p.OrderID}, payload})
	}
	if err == nil {
		err = s.writeAgain(ctx, events)
	}
	return len(events), s.FailedTo(ctx, err, "write events order.paid_late again")
}

// writeAgain writes events into the outbox.
func (s *Reader) writeAgain(ctx context.Context, events []receipt) error {
	if len(events) == 0 {
		return nil
	}
	return s.Transact(ctx, func(tx *gorm.DB) error {
		now, err := s.NowIn(tx)
		if err != nil {
			return err
		}
		in := db.Insert{Into: "outbox_events (order_id, payload, created_at)"}
		for _, e := range events {
			if e.payload != "" {
				in.Row(e.OrderID, e.payload, s.Dialect.Time(now))
			}
		}
		return in.Exec(tx, s.Dialect)
	})
}
