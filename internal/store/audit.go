package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// AuditState is what an order's status means for its close.
type AuditState string

// The states of an order's status.
const (
	AuditOpen     AuditState = "open"     // closed once it is due
	AuditExcluded AuditState = "excluded" // as open, but the mapping excludes the order: a close leaves it as it is
	AuditPaid     AuditState = "paid"     // paid, and never to be closed
	AuditClosed   AuditState = "closed"   // closed; by orderclose only, if AuditRules.Exclusive
	AuditOther    AuditState = "other"    // ended in another way, such as cancelled
)

// AuditPart is a table of orders and a status. One query of an audit reads one part, by the index on status and due time.
type AuditPart struct {
	Table  string
	Status string // as the database stores it
	State  AuditState
	// RowsOnly makes AuditPage read the rows of the orders only: no receipts, lines and ledger rows.
	RowsOnly bool
	// Unlisted says that the mapping does not name the status. State is what a close takes the status for.
	Unlisted bool
	meaning  string // what the shop's own status means, such as unpaid; empty in the reference schema
	table    *table
	value    mapping.Value
}

// String returns the status with its meaning.
func (p AuditPart) String() string { return mapping.InWords(p.Status, p.meaning) }

// AuditRow is an order with its receipt, lines and ledger rows.
type AuditRow struct {
	orderclose.Order
	Part AuditPart
	// ClosedAt is when a program closed the order; zero if it is not closed, or if its row has no such time. Only AuditPage reads it.
	ClosedAt time.Time
	Receipt  *ReceiptRow // nil: the order has no receipt
	Ledger   []LedgerRow
	// Late counts the order's late payments, and LateOpen those of them that nobody has resolved.
	Late, LateOpen int
	Reopened       bool // somebody has resolved one of them so: the order may be paid after its close

	// The following fields are read only for a part with the state AuditClosed.

	PaidAt bool // the order has a payment time; reference schema only
	// LineQuantities is the quantity of the order's lines by SKU, without quantities of 0. It is empty if the mapping has no lines.
	LineQuantities map[string]int64
	// LinesError says why the lines cannot be read. LineQuantities is then incomplete.
	LinesError error
}

// AuditRules say what an audit of this database can check.
type AuditRules struct {
	// Exclusive says that only orderclose sets the closed status. Then an order is closed
	// if and only if it has a receipt. In the shop's own tables this is not known.
	Exclusive bool
	Lines     bool // orders have lines, so each receipt has what came back
	// Event is the type of the event of a close.
	Event string
	// Overwritten says that an order with a receipt should have the status Status.To, and no other closed status.
	Overwritten bool
}

// AuditRules returns what an audit can check.
func (s *Store) AuditRules() AuditRules {
	return AuditRules{Exclusive: !s.mapped, Lines: s.q.m.Items != nil, Event: s.q.m.Event,
		Overwritten: s.mapped && !slices.Contains(s.q.m.Accept, mapping.OverwrittenClose)}
}

// AuditParts returns all parts of an audit: the statuses that the mapping names, and the other statuses that orders have. An order whose status is NULL
// is in no part. If row-level security may hide rows, the error is a *MappingError.
func (s *Store) AuditParts(ctx context.Context) ([]AuditPart, error) {
	in, err := s.allTables(ctx)
	if err == nil {
		err = s.seesAllRows(ctx)
	}
	if err != nil {
		return nil, err
	}
	var parts []AuditPart
	for _, t := range in {
		add := func(state AuditState, values ...mapping.Value) {
			for _, v := range values {
				p := AuditPart{Table: t.name, Status: v.Text, State: state, table: t, value: v}
				if s.mapped {
					p.meaning = s.q.m.Status.Meaning(v.Text)
				} else {
					p.Status = statusOf(v).String()
				}
				parts = append(parts, p)
			}
		}
		status := s.q.m.Status
		add(AuditOpen, status.From)
		if s.q.excludes {
			add(AuditExcluded, status.From)
		}
		add(AuditClosed, status.To)
		add(AuditPaid, status.Paid...)
		add(AuditOther, slices.DeleteFunc(slices.Clone(status.Closed), func(v mapping.Value) bool { return v == status.To })...)
		unlisted, err := s.unlisted(ctx, t)
		if err != nil {
			return nil, s.failed(ctx, err, "read the statuses of %s", t.name)
		}
		named := len(parts)
		add(s.unlistedState(), unlisted...)
		for i := range parts[named:] {
			parts[named+i].Unlisted = true
		}
	}
	return parts, nil
}

// statusOf converts a value to a status of the reference schema.
func statusOf(v mapping.Value) Status {
	n, _ := v.Arg().(int64)
	return Status(n)
}

// AuditPage returns up to limit orders of a part, at most 999, that are due in [from, to], with their receipts, lines and ledger rows, all as of one
// moment. Both ends are rounded down to the precision of the due time's column, so the page may have orders from just before from. The orders are sorted
// by due time and id, and begin after the order after; the zero Order begins with the first.
func (s *Store) AuditPage(ctx context.Context, part AuditPart, from, to time.Time, after orderclose.Order, limit int) (rows []AuditRow, err error) {
	last := after.ID
	limit = min(limit, maxIn)
	if after.Due.Before(from) {
		after = orderclose.Order{Due: from}
	}
	p := s.q.everyPage(part.value, to, after, limit)
	switch part.State {
	case AuditOpen:
		p = s.q.openPage(to, after, limit)
	case AuditExcluded:
		p = s.q.excludedPage(part.table, to, after, limit)
	}
	err = s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		err := s.readPage(tx, []*table{part.table}, p, func(o orderclose.Order, closedAt any) {
			r := AuditRow{Order: o, Part: part, LineQuantities: map[string]int64{}}
			if part.State == AuditClosed {
				r.ClosedAt, _, _ = first(s.q.closedAt).Decode(closedAt) // what is not a time must not end a page
			}
			rows = append(rows, r)
		})
		if err != nil || len(rows) == 0 || part.RowsOnly {
			return err
		}
		ids, byID := make([]string, len(rows)), make(map[string]*AuditRow, len(rows))
		for i := range rows {
			ids[i], byID[rows[i].ID] = rows[i].ID, &rows[i]
		}
		return s.auditBelongings(tx, part, ids, func(id string) *AuditRow {
			return cmp.Or(byID[id], &AuditRow{LineQuantities: map[string]int64{}}) // matched by the collation, not requested
		})
	}, s.dialect.snapshot)
	return rows, s.failed(ctx, err, "read orders of %s that are %s, after %q", part.Table, part.Status, last)
}

// CanAudit returns nil if the rows can be read that a close writes. Else it says why not: Migrate has not created their tables yet, or the
// user may not read them. AuditPage then works with AuditPart.RowsOnly.
func (s *Store) CanAudit(ctx context.Context) error {
	var none []string
	return s.failed(ctx, s.gorm.WithContext(ctx).Raw("SELECT order_id FROM receipts WHERE 1 = 0").Scan(&none).Error, "read the receipts of closes")
}

// ReceiptKey is the place of a receipt in the order of closes.
type ReceiptKey struct {
	ClosedAt time.Time
	OrderID  string
}

// AuditClosed returns the orders of up to limit receipts, at most 999, of closes in [from, to), whenever the orders are due now, with
// what AuditPage returns, as of one moment. It begins behind the receipt after; the zero ReceiptKey begins with the first. An
// order without a row, such as an archived one, is left out. last is the last receipt; zero: there is no further one.
func (s *Store) AuditClosed(ctx context.Context, from, to time.Time, after ReceiptKey, limit int) (rows []AuditRow, last ReceiptKey, err error) {
	in, err := s.everywhere(ctx) // outside the transaction, which holds one connection already
	if err != nil {
		return nil, last, err
	}
	err = s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		found, next, err := s.receiptsBetween(tx, closeReceipts, from, to, after, limit)
		last = next
		var ids []string
		for _, k := range found {
			if _, ok := s.q.m.ID.Arg(k.OrderID); ok {
				ids = append(ids, k.OrderID)
			}
		}
		for _, t := range in.all {
			if err == nil && len(ids) > 0 {
				var of []AuditRow
				of, ids, err = s.auditRows(tx, t, ids)
				rows = append(rows, of...)
			}
		}
		return err
	}, s.dialect.snapshot)
	return rows, last, s.failed(ctx, err, "read the orders of receipts after %q", after.OrderID)
}

// auditRows returns the orders of ids that a table has, with their receipts, lines and ledger rows, and the other ids.
func (s *Store) auditRows(tx *gorm.DB, t *table, ids []string) (rows []AuditRow, missing []string, err error) {
	query := fmt.Sprintf("SELECT %s, %s, %s, %s FROM %s WHERE %s IN ?",
		s.q.m.ID.Read(s.q.m.ID.Column), s.q.readState(), mapping.Quote(s.q.m.Status.Column), s.q.dueOf(t.name), mapping.Quote(t.name), mapping.Quote(s.q.m.ID.Column))
	err = eachRow(tx, query, append(s.q.stateArgs(), s.q.args(ids)), func(r *sql.Rows) (err error) {
		row, st, status, due := AuditRow{LineQuantities: map[string]int64{}}, state(0), "", any(nil)
		if err := r.Scan(&row.ID, &st, nullable(&status), &due); err != nil || !slices.Contains(ids, row.ID) { // the collation may match another order
			return err
		}
		row.Part = s.auditPart(t, st, status)
		row.Due, err = s.q.decodeDue(due)
		rows = append(rows, row)
		return err
	})
	byPart := map[AuditState][]string{}
	byID := map[string]*AuditRow{}
	for i := range rows {
		r := &rows[i]
		byID[r.ID] = r
		byPart[r.Part.State] = append(byPart[r.Part.State], r.ID)
	}
	for state, of := range byPart {
		if err == nil {
			err = s.auditBelongings(tx, AuditPart{State: state, table: t}, of, func(id string) *AuditRow {
				return cmp.Or(byID[id], &AuditRow{LineQuantities: map[string]int64{}})
			})
		}
	}
	return rows, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return byID[id] != nil }), err
}

// auditPart returns the part of an order, by the state and the status of its row.
func (s *Store) auditPart(t *table, st state, status string) AuditPart {
	to := s.q.m.Status.To
	p := AuditPart{Table: t.name, Status: status, table: t, meaning: s.q.m.Status.Meaning(status)}
	p.Unlisted = !slices.ContainsFunc(slices.Concat([]mapping.Value{s.q.m.Status.From, to}, s.q.m.Status.Paid, s.q.m.Status.Closed),
		func(v mapping.Value) bool { return v.Text == status })
	switch {
	case st == stateOpen:
		p.State = AuditOpen
	case st == stateExcluded:
		p.State = AuditExcluded
	case st == statePaid:
		p.State = AuditPaid
	case status == to.Text:
		p.State = AuditClosed
	default:
		p.State = AuditOther
	}
	if n, err := strconv.Atoi(status); err == nil && !s.mapped {
		p.Status, p.meaning = Status(n).String(), ""
	}
	return p
}

// auditBelongings reads the receipts, lines and ledger rows of orders.
func (s *Store) auditBelongings(tx *gorm.DB, part AuditPart, ids []string, of func(id string) *AuditRow) error {
	if err := eachReceipt(tx, ids, func(id string, r *ReceiptRow) { of(id).Receipt = r }); err != nil {
		return err
	}
	if err := eachLedgerRow(tx, ids, func(id string, l LedgerRow) { of(id).Ledger = append(of(id).Ledger, l) }); err != nil {
		return err
	}
	if err := wrap(eachRow(tx, "SELECT order_id, resolved_at IS NULL, resolution FROM late_payments WHERE order_id IN ?", []any{ids}, func(rows *sql.Rows) error {
		var id string
		var open bool
		var how LateResolution
		err := rows.Scan(&id, &open, &how)
		of(id).Late++
		if open {
			of(id).LateOpen++
		}
		of(id).Reopened = of(id).Reopened || how == Reopened
		return err
	}), "late payments"); err != nil {
		return err
	}
	if part.table.lines != "" && part.State == AuditClosed {
		all, unreadable, err := s.readLines(tx, part.table.countedLines, ids)
		if err != nil {
			return fmt.Errorf("lines: %w", err)
		}
		for id, err := range unreadable {
			of(id).LinesError = err
		}
		for _, l := range all[0] {
			if l.quantity != 0 { // a gift holds nothing
				of(l.order).LineQuantities[l.sku] = l.quantity
			}
		}
	}
	if s.q.m.PaidAt == nil || part.State != AuditClosed {
		return nil
	}
	var paid []string
	err := tx.Raw(part.table.exists+" AND "+mapping.Quote(s.q.m.PaidAt.Column)+" IS NOT NULL", s.q.args(ids)).Scan(&paid).Error
	for _, id := range paid {
		of(id).PaidAt = true
	}
	return err
}

// pendingPage is how many rows of the outbox one query of PendingEvents reads.
const pendingPage = 5000

// PendingEvents calls each with the order id of every event of a close that waits in the outbox.
func (s *Store) PendingEvents(ctx context.Context, each func(orderID string)) error {
	for after := int64(-1); ; {
		var page []struct {
			ID      int64
			OrderID string
		}
		err := s.gorm.WithContext(ctx).Raw("SELECT id, order_id FROM outbox_events WHERE kind IN ? AND id > ? ORDER BY id LIMIT ?",
			[]string{orderclose.EventOrderClosed, s.q.m.Event}, after, pendingPage).Scan(&page).Error
		for _, r := range page {
			after = r.ID
			each(r.OrderID)
		}
		if err != nil || len(page) < pendingPage {
			return s.failed(ctx, err, "read outbox_events")
		}
	}
}
