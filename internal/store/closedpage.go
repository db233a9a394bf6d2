package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// ClosedRow is an order with the time of its close, by any program.
type ClosedRow struct {
	orderclose.Order
	// ClosedAt is zero if the order is not closed, or if its row has no such time.
	ClosedAt time.Time
}

// ClosedPage is AuditPage with the time of the close in place of the receipts, lines and ledger rows.
// It reads the tables of orders only. So it works before Migrate, and for a user who may only read.
func (s *Store) ClosedPage(ctx context.Context, part AuditPart, from, to time.Time, after orderclose.Order, limit int) ([]ClosedRow, error) {
	var rows []ClosedRow
	err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		orders, err := s.auditOrders(tx, part, from, to, after, min(limit, maxIn))
		if err != nil {
			return err
		}
		rows = make([]ClosedRow, len(orders))
		for i, o := range orders {
			rows[i].Order = o
		}
		if len(rows) == 0 || part.State != AuditClosed || s.q.m.ClosedAt == nil {
			return nil
		}
		return s.readClosedAt(tx, part.table, rows)
	}, s.dialect.snapshot())
	return rows, s.failed(ctx, err, "read orders of %s that are %s, after %q", part.Table, part.Status, after.ID)
}

// readClosedAt sets ClosedAt of the rows, which are of one table. A value that is not a time must
// not end a page, and counts as none.
func (s *Store) readClosedAt(tx *gorm.DB, t *table, rows []ClosedRow) error {
	ids, byID := make([]string, len(rows)), make(map[string]*ClosedRow, len(rows))
	for i := range rows {
		ids[i], byID[rows[i].ID] = rows[i].ID, &rows[i]
	}
	id := mapping.Quote(s.q.m.ID.Column)
	query := fmt.Sprintf("SELECT %s, %s FROM %s%s WHERE %[1]s IN ?", id, mapping.Quote(s.q.m.ClosedAt.Column), mapping.Quote(t.name), s.q.d.hint(s.q.m.ID.Index))
	return eachRow(tx, query, []any{s.q.args(ids)}, func(found *sql.Rows) error {
		var id string
		var at any
		if err := found.Scan(&id, &at); err != nil {
			return err
		}
		if row := byID[id]; row != nil { // nil: matched by the collation, not requested
			if closed, ok, err := s.q.closedAt.Decode(at); ok && err == nil {
				row.ClosedAt = closed
			}
		}
		return nil
	})
}
