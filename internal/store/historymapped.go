package store

import (
	"database/sql"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// mappedHistory reads an order and its lines from the shop's own tables. With shards it reads the
// first table that has the order.
func (s *Store) mappedHistory(tx *gorm.DB, id string, history *OrderHistory) error {
	arg, ok := s.q.m.ID.Arg(id)
	if !ok {
		return nil
	}
	candidates, err := s.candidates(tx.Statement.Context, []orderclose.CloseRequest{{OrderID: id}})
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		t := candidates.nth(id, n)
		if t == nil {
			return nil
		}
		if err := eachRow(tx, s.q.history(t), []any{arg}, func(rows *sql.Rows) error { return s.q.scanHistory(rows, id, history) }); err != nil {
			return err
		}
		if history.Order != nil {
			return s.mappedLines(tx, t, arg, history)
		}
	}
}

// history writes the SELECT of one order, without a lock.
func (q *statements) history(t *table) string {
	return fmt.Sprintf("SELECT %s, %s, %s, %s, %s, %s FROM %s WHERE %s = ?",
		orElse(q.m.Category, "''"), mapping.Quote(q.m.Status.Column), orElse(q.m.Created.Name(), "NULL"), mapping.Quote(q.m.Due.Column), orElse(q.m.ClosedAt.Name(), "NULL"),
		"COALESCE("+orElse(q.m.Version, "0")+", 0)", mapping.Quote(t.name), mapping.Quote(q.m.ID.Column))
}

// scanHistory reads an order's row. Its State is the shop's own value of the status, and its
// Status is -1.
func (q *statements) scanHistory(rows *sql.Rows, id string, history *OrderHistory) error {
	o := OrderRow{ID: id, Status: -1}
	var created, due, closed any
	if err := rows.Scan(nullable(&o.Category), nullable(&o.State), &created, &due, &closed, &o.Version); err != nil {
		return err
	}
	o.Meaning = q.m.Status.Meaning(o.State)
	var err error
	if o.Due, _, err = q.due.Decode(due); err != nil {
		return err
	}
	if q.m.Created != nil {
		if o.CreatedAt, _, err = q.created.Decode(created); err != nil {
			return err
		}
	}
	if q.m.ClosedAt != nil {
		var at time.Time
		if at, _, err = q.closedAt.Decode(closed); err != nil {
			return err
		}
		o.ClosedAt = some(at)
	}
	history.Order = &o
	return nil
}

// mappedLines reads the lines of an order. They are numbered from 1 in the order in which the
// database returns them.
func (s *Store) mappedLines(tx *gorm.DB, t *table, id any, history *OrderHistory) error {
	if t.lines == "" {
		return nil
	}
	return eachRow(tx, t.lines, []any{[]any{id}}, func(rows *sql.Rows) error {
		var order string
		i := ItemRow{Line: len(history.Items) + 1}
		var quantity sql.NullInt64
		err := rows.Scan(&order, nullable(&i.SKU), &quantity)
		i.Quantity = quantity.Int64
		history.Items = append(history.Items, i)
		return err
	})
}
