package read

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/money"
	"github.com/orderclose/orderclose/internal/store/schema"
)

// AuditPart is a table of orders and a status. One query of an audit reads one part, by the index on status and due time.
type AuditPart struct {
	Table  string
	Status string // as the database stores it
	State  schema.AuditState
	// RowsOnly makes AuditPage read the rows of the orders only: no receipts, lines and ledger rows.
	RowsOnly bool
	// Unlisted says that the mapping does not name the status. State is what a close takes the status for.
	Unlisted bool
	meaning  string // what the shop's own status means, such as unpaid; empty in the reference schema
	table    *db.Table
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
	Receipt  *closetx.ReceiptRow // nil: the order has no receipt
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
	// Overwritten says that an order with a receipt should have the status Status.To, and no other closed status.
	Overwritten bool
}

// AuditRules returns what an audit can check.
func (s *Reader) AuditRules() AuditRules {
	return AuditRules{Exclusive: !s.Mapped, Lines: s.Q.M.Items != nil,
		Overwritten: s.Mapped && !slices.Contains(s.Q.M.Accept, mapping.OverwrittenClose)}
}

// AuditParts returns all parts of an audit: the statuses that the mapping names, and the other statuses that orders have. An order whose status is NULL
// is in no part. If row-level security may hide rows, the error is a *MappingError.
func (s *Reader) AuditParts(ctx context.Context) ([]AuditPart, error) {
	in, err := s.AllTables(ctx)
	if err == nil {
		err = s.SeesAllRows(ctx)
	}
	if err != nil {
		return nil, err
	}
	var parts []AuditPart
	for _, t := range in {
		add := func(state schema.AuditState, values ...mapping.Value) {
			for _, v := range values {
				p := AuditPart{Table: t.Name, Status: v.Text, State: state, table: t, value: v}
				if s.Mapped {
					p.meaning = s.Q.M.Status.Meaning(v.Text)
				} else {
					p.Status = statusOf(v).String()
				}
				parts = append(parts, p)
			}
		}
		status := s.Q.M.Status
		add(schema.AuditOpen, status.From...)
		if s.Q.Excludes() {
			add(schema.AuditExcluded, status.From...)
		}
		add(schema.AuditClosed, status.To)
		add(schema.AuditPaid, status.Paid...)
		add(schema.AuditOther, slices.DeleteFunc(slices.Clone(status.Closed), func(v mapping.Value) bool { return v == status.To })...)
		unlisted, err := s.Unlisted(ctx, t)
		if err != nil {
			return nil, s.FailedTo(ctx, err, "read the statuses of %s", t.Name)
		}
		named := len(parts)
		add(s.UnlistedState(), unlisted...)
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
func (s *Reader) AuditPage(ctx context.Context, part AuditPart, from, to time.Time, after orderclose.Order, limit int) (rows []AuditRow, err error) {
	last := after.ID
	limit = min(limit, db.MaxIn)
	if after.Due.IsZero() {
		after = orderclose.Order{Due: from} // from is rounded down, so an order of an earlier page may be due before it
	}
	p := s.Q.EveryPage(mapping.OneOf{part.value}, to, after, limit)
	switch part.State {
	case schema.AuditOpen:
		p = s.Q.OpenPage(to, after, limit).Of(part.value)
	case schema.AuditExcluded:
		p = s.Q.ExcludedPage(part.table, to, after, limit).Of(part.value)
	}
	err = s.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		err := s.ReadPage(tx, []*db.Table{part.table}, p, func(o orderclose.Order, closedAt any) {
			r := AuditRow{Order: o, Part: part, LineQuantities: map[string]int64{}}
			if part.State == schema.AuditClosed {
				r.ClosedAt, _, _ = db.First(s.Q.ClosedAt).Decode(closedAt) // what is not a time must not end a page
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
	}, s.Dialect.Snapshot)
	return rows, s.FailedTo(ctx, err, "read orders of %s that are %s, after %q", part.Table, part.Status, last)
}

// CanAudit returns nil if the rows can be read that a close writes. Else it says why not: Migrate has not created their tables yet, or the
// user may not read them. AuditPage then works with AuditPart.RowsOnly.
func (s *Reader) CanAudit(ctx context.Context) error {
	var none []string
	return s.FailedTo(ctx, s.Gorm.WithContext(ctx).Raw("SELECT order_id FROM receipts WHERE 1 = 0").Scan(&none).Error, "read the receipts of closes")
}

// ReceiptKey is the place of a receipt in the order of closes.
type ReceiptKey struct {
	ClosedAt time.Time
	OrderID  string
}

// AuditClosed returns the orders of up to limit receipts, at most 999, of closes in [from, to), whenever the orders are due now, with
// what AuditPage returns, as of one moment. It begins behind the receipt after; the zero ReceiptKey begins with the first. An
// order without a row, such as an archived one, is left out. last is the last receipt; zero: there is no further one.
func (s *Reader) AuditClosed(ctx context.Context, from, to time.Time, after ReceiptKey, limit int) (rows []AuditRow, last ReceiptKey, err error) {
	in, err := s.Everywhere(ctx) // outside the transaction, which holds one connection already
	if err != nil {
		return nil, last, err
	}
	err = s.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		found, next, err := s.receiptsBetween(tx, closeReceipts, from, to, after, limit)
		last = next
		var ids []string
		for _, k := range found {
			if _, ok := s.Q.IDArg(k.OrderID); ok {
				ids = append(ids, k.OrderID)
			}
		}
		for _, t := range in.All {
			if err == nil && len(ids) > 0 {
				var of []AuditRow
				of, ids, err = s.auditRows(tx, t, ids)
				rows = append(rows, of...)
			}
		}
		return err
	}, s.Dialect.Snapshot)
	return rows, last, s.FailedTo(ctx, err, "read the orders of receipts after %q", after.OrderID)
}

// auditRows returns the orders of ids that a table has, with their receipts, lines and ledger rows, and the other ids.
func (s *Reader) auditRows(tx *gorm.DB, t *db.Table, ids []string) (rows []AuditRow, missing []string, err error) {
	query := fmt.Sprintf("SELECT %s, %s, %s, CASE WHEN %[3]s = ? THEN 2 WHEN %[3]s IN ? THEN 1 ELSE 0 END, %[4]s FROM %[5]s WHERE %[6]s IN ?",
		s.Q.M.ID.Read(s.Q.M.ID.Column), s.Q.ReadState(), mapping.Quote(s.Q.M.Status.Column), s.Q.DueOf(t.Name), mapping.Quote(t.Name), mapping.Quote(s.Q.M.ID.Column))
	m := s.Q.M.Status
	named := m.From.Args()
	for _, v := range slices.Concat(m.Paid, m.Closed) {
		named = append(named, v.Arg())
	}
	err = db.EachRow(tx, query, append(s.Q.StateArgs(), m.To.Arg(), named, s.Q.Args(ids)), func(r *sql.Rows) (err error) {
		row, st, status, known, due := AuditRow{LineQuantities: map[string]int64{}}, db.State(0), "", 0, any(nil)
		if err := r.Scan(&row.ID, &st, db.Nullable(&status), &known, &due); err != nil || !slices.Contains(ids, row.ID) { // the collation may match another order
			return err
		}
		row.Part = s.auditPart(t, st, status, known)
		row.Due, err = s.Q.DecodeDue(due)
		rows = append(rows, row)
		return err
	})
	byPart := map[schema.AuditState][]string{}
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

// auditPart returns the part of an order, by the state and the status of its row. To the database the status is 2: Status.To, 1: another one that
// the mapping names, or 0: none of them; its collation may ignore the case.
func (s *Reader) auditPart(t *db.Table, st db.State, status string, known int) AuditPart {
	p := AuditPart{Table: t.Name, Status: status, table: t, meaning: s.Q.M.Status.Meaning(status), Unlisted: known == 0}
	switch {
	case st == db.StateOpen:
		p.State = schema.AuditOpen
	case st == db.StateExcluded:
		p.State = schema.AuditExcluded
	case st == db.StatePaid:
		p.State = schema.AuditPaid
	case known == 2:
		p.State = schema.AuditClosed
	default:
		p.State = schema.AuditOther
	}
	if n, err := strconv.Atoi(status); err == nil && !s.Mapped {
		p.Status, p.meaning = Status(n).String(), ""
	}
	return p
}

// auditBelongings reads the receipts, lines and ledger rows of orders.
func (s *Reader) auditBelongings(tx *gorm.DB, part AuditPart, ids []string, of func(id string) *AuditRow) error {
	if err := closetx.EachReceipt(tx, ids, func(id string, r *closetx.ReceiptRow) { of(id).Receipt = r }); err != nil {
		return err
	}
	if err := eachLedgerRow(tx, ids, "", func(id string, l LedgerRow) { of(id).Ledger = append(of(id).Ledger, l) }); err != nil {
		return err
	}
	const late = "SELECT order_id, resolved_at IS NULL, resolution FROM late_payments WHERE order_id IN ?"
	if err := db.Wrap(db.EachRow(tx, late, []any{ids}, func(rows *sql.Rows) error {
		var id string
		var open bool
		var how money.LateResolution
		err := rows.Scan(&id, &open, &how)
		of(id).Late++
		if open {
			of(id).LateOpen++
		}
		of(id).Reopened = of(id).Reopened || how == money.Reopened
		return err
	}), "late payments"); err != nil {
		return err
	}
	if part.table.Lines != "" && part.State == schema.AuditClosed {
		all, unreadable, err := s.ReadLines(tx, part.table.CountedLines, ids)
		if err != nil {
			return fmt.Errorf("lines: %w", err)
		}
		for id, err := range unreadable {
			of(id).LinesError = err
		}
		for _, l := range all[0] {
			if l.Quantity != 0 { // a gift holds nothing
				of(l.Order).LineQuantities[l.SKU] = l.Quantity
			}
		}
	}
	if s.Q.M.PaidAt == nil || part.State != schema.AuditClosed {
		return nil
	}
	var paid []string
	err := tx.Raw(part.table.Exists+" AND "+mapping.Quote(s.Q.M.PaidAt.Column)+" IS NOT NULL", s.Q.Args(ids)).Scan(&paid).Error
	for _, id := range paid {
		of(id).PaidAt = true
	}
	return err
}

// StockFinding is a difference between the lines of an order and the stock that moved.
type StockFinding struct {
	Kind string // ledger_missing, ledger_double: the stock moved more than once, or ledger_wrong
	SKU  string
	What string // what is and what should be
	Fix  string // what a person can do
}

// unlessChanged begins what to do about stock that moved otherwise than the lines say. It moved as the lines were then.
const unlessChanged = "if a program has changed or archived lines since then, change nothing, and let it compare the status; " +
	"otherwise (the ledger of a close is in the column returned of its receipt) "

// JudgeStock compares what an order held, by SKU, with the ledger rows of its stock. want is the kind
// of row that each SKU must have; empty if the order holds its stock, so that no row may exist. The
// findings are sorted by SKU. Pure.
func JudgeStock(held map[string]int64, ledger []LedgerRow, want string) (found []StockFinding) {
	moves := map[string][]LedgerRow{}
	for sku := range held {
		moves[sku] = nil
	}
	for _, l := range ledger {
		moves[l.SKU] = append(moves[l.SKU], l)
	}
	for _, sku := range slices.Sorted(maps.Keys(moves)) {
		rows, n := moves[sku], held[sku]
		written := make([]string, len(rows))
		for i, l := range rows {
			written[i] = fmt.Sprintf("%s %d of %s", l.Kind, l.Quantity, l.SKU)
		}
		slices.Sort(written)
		have, should := strings.Join(written, ", "), fmt.Sprintf("%s %d of %s", want, n, sku)
		add := func(kind, what, fix string) { found = append(found, StockFinding{kind, sku, what, fix}) }
		switch {
		case len(rows) > 1:
			add("ledger_double", fmt.Sprintf("%d of %s moved more than once: %s", n, sku, have),
				"subtract the excess from available and delete its ledger row, in one transaction; check that the table has its primary key")
		case len(rows) == 1 && want == "":
			add("ledger_wrong", "the ledger has "+have,
				"find out why its status was set back; reserve its stock again and delete the ledger row, in one transaction")
		case len(rows) == 0 && want != "" && n != 0: // a gift holds nothing
			add("ledger_missing", fmt.Sprintf("%d of %s never moved; the ledger should have %s", n, sku, should),
				fmt.Sprintf(unlessChanged+"subtract %d from reserved, add it to available, and insert the ledger row (%s), in one transaction", n, want))
		case len(rows) == 1 && (rows[0].Kind != want || rows[0].Quantity != n):
			add("ledger_wrong", fmt.Sprintf("the ledger has %s, and should have %s", have, should),
				fmt.Sprintf(unlessChanged+"the row should be %s %d: move the difference and correct the row, in one transaction", want, n))
		}
	}
	return found
}
