package store

import (
	"errors"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/tables"
)

// statements are the SQL on a mapped set of tables, written once. Of a mapping
// with shards each month has its own texts for orders and items.
type statements struct {
	m                      *tables.Mapping
	d                      Dialect
	due, created, closedAt tables.Codec // created and closedAt only where mapped
	months                 *months      // nil: no shards
	whole                  *table       // nil: shards
}

// table is one table of orders, and their lines, with the statements on them.
type table struct {
	name  string // of the orders, as the mapping writes it
	items string // of their lines; empty: none
	month tables.Month

	lock  string // open, closed or paid, now, ids
	look  string // the same, without locking
	pay   string // paid, ids, open; empty: the mapping does not say what paid is
	mark  string // to, [closed at], ids, from, now
	lines string // ids
	page  string // from, cutoff, at, at, id, limit
}

// newStatements writes the statements of a mapping that is in order.
func newStatements(m *tables.Mapping, d Dialect) (*statements, error) {
	q := &statements{m: m.WithDefaults(), d: d}
	if err := tables.Err(q.m.Check()); err != nil {
		return nil, fmt.Errorf("the mapping of the orders' tables: %w", err)
	}
	var errs [3]error
	q.due, errs[0] = q.m.Due.Codec()
	if q.m.Created != nil {
		q.created, errs[1] = q.m.Created.Codec()
	}
	if q.m.ClosedAt != nil {
		q.closedAt, errs[2] = q.m.ClosedAt.Codec()
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if q.m.Shards == nil {
		q.whole = q.table(0)
		return q, nil
	}
	var err error
	q.months, err = newMonths(q)
	return q, err
}

// referenceMapping is the reference schema as the dialect's migrations make it.
func referenceMapping(d Dialect) *tables.Mapping {
	m := tables.Reference()
	if d.Name == SQLite {
		for _, t := range m.Moments() {
			t.Type, t.Zone, t.Precision = tables.UnixMillis, "", ""
		}
	}
	return m
}

// table writes the statements for one month, or for the one table there is.
func (q *statements) table(month tables.Month) *table {
	t := &table{name: q.m.Orders, month: month}
	if q.m.Items != nil {
		t.items = q.m.Items.Table
	}
	if q.m.Shards != nil {
		t.name = monthly(t.name, month)
		t.items = monthly(t.items, month)
	}
	t.look = q.look(t.name)
	t.lock = t.look + q.d.lock
	t.pay, t.mark, t.page = q.pay(t.name), q.mark(t.name), q.page(t.name)
	if t.items != "" {
		i := q.m.Items
		t.lines = fmt.Sprintf("SELECT %s, %s, %s FROM %s WHERE %[1]s IN ?",
			tables.Quote(i.Order), tables.Quote(i.SKU), tables.Quote(i.Quantity), tables.Quote(t.items))
	}
	return t
}

func monthly(name string, month tables.Month) string {
	if p, err := tables.ParsePattern(name); err == nil {
		return p.Table(month)
	}
	return name
}

// What a status is to closing.
type state int8

const (
	stateOpen   state = 0
	statePaid   state = 1
	stateClosed state = 2
)

// look has the database itself compare the status, by the column's own rules, as
// the compare-and-set will.
func (q *statements) look(orders string) string {
	listed, rest := stateClosed, statePaid
	if q.listsPaid() {
		listed, rest = statePaid, stateClosed
	}
	id, status := tables.Quote(q.m.ID.Column), tables.Quote(q.m.Status.Column)
	version := "-1"
	if q.m.Version != "" {
		version = "COALESCE(" + tables.Quote(q.m.Version) + ", 0)"
	}
	read := fmt.Sprintf("CASE WHEN %s = ? THEN %d WHEN %s IN ? THEN %d ELSE %d END", status, stateOpen, status, listed, rest)
	return fmt.Sprintf("SELECT %s, %s, %s, %s, %s, ? FROM %s%s WHERE %s IN ? ORDER BY %s",
		id, orElse(q.m.Category, "''"), read, tables.Quote(q.m.Due.Column), version,
		tables.Quote(orders), q.d.hint(q.m.ID.Index), id, id)
}

// listsPaid tells whether it is the paid values that are listed, and all others
// are closed.
func (q *statements) listsPaid() bool { return len(q.m.Status.Paid) > 0 && len(q.m.Status.Closed) == 0 }

// lookArgs are the arguments of a table's look and lock.
func (q *statements) lookArgs(ids []any) []any {
	listed := append([]tables.Value{q.m.Status.To}, q.m.Status.Closed...)
	if q.listsPaid() {
		listed = q.m.Status.Paid
	}
	values := make([]any, len(listed))
	for i, v := range listed {
		values[i] = v.Arg()
	}
	return []any{q.m.Status.From.Arg(), values, q.d.now(), ids}
}

// pay is the payment's compare-and-set.
func (q *statements) pay(orders string) string {
	if _, ok := q.m.Status.Pay(); !ok {
		return ""
	}
	status := tables.Quote(q.m.Status.Column)
	set := status + " = ?"
	if v := tables.Quote(q.m.Version); q.m.Version != "" {
		set += ", " + v + " = COALESCE(" + v + ", 0) + 1"
	}
	return fmt.Sprintf("UPDATE %s%s SET %s WHERE %s IN ? AND %s%s = ?", tables.Quote(orders), q.d.hint(q.m.ID.Index), set,
		tables.Quote(q.m.ID.Column), q.d.unindexed, status)
}

func orElse(column, otherwise string) string {
	if column == "" {
		return otherwise
	}
	return tables.Quote(column)
}

func (q *statements) mark(orders string) string {
	set := tables.Quote(q.m.Status.Column) + " = ?"
	if q.m.ClosedAt != nil {
		set += ", " + tables.Quote(q.m.ClosedAt.Column) + " = ?"
	}
	if v := tables.Quote(q.m.Version); q.m.Version != "" {
		set += ", " + v + " = COALESCE(" + v + ", 0) + 1"
	}
	return fmt.Sprintf("UPDATE %s%s SET %s WHERE %s IN ? AND %s%s = ? AND %s <= ?", tables.Quote(orders), q.d.hint(q.m.ID.Index), set,
		tables.Quote(q.m.ID.Column), q.d.unindexed, tables.Quote(q.m.Status.Column), tables.Quote(q.m.Due.Column))
}

// markArgs are the arguments of a table's mark.
func (q *statements) markArgs(ids []any, now time.Time) []any {
	args := []any{q.m.Status.To.Arg()}
	if q.m.ClosedAt != nil {
		args = append(args, q.closedAt.Arg(now))
	}
	return append(args, ids, q.m.Status.From.Arg(), q.due.Arg(now))
}

// page is spelt so that the index is entered at the right place and each row read
// is a row found: a comparison of tuples reads the whole range. A row without an id is no
// order that anybody can name.
func (q *statements) page(orders string) string {
	created := "NULL"
	if q.m.Created != nil {
		created = tables.Quote(q.m.Created.Column)
	}
	hint := ""
	if q.m.DueIndex != "" {
		hint = q.d.hint(q.m.DueIndex)
	}
	return fmt.Sprintf("SELECT %s AS oc_id, %s AS oc_category, %s AS oc_created, %s AS oc_due FROM %s%s"+
		" WHERE %s = ? AND %[4]s <= ? AND %[4]s >= ? AND (%[4]s > ? OR %[1]s > ?) AND %[1]s IS NOT NULL ORDER BY %[4]s, %[1]s LIMIT ?",
		tables.Quote(q.m.ID.Column), orElse(q.m.Category, "''"), created, tables.Quote(q.m.Due.Column), tables.Quote(orders), hint,
		tables.Quote(q.m.Status.Column))
}

func (q *statements) pageArgs(cutoff time.Time, after orderclose.Order, limit int) []any {
	at := q.due.Oldest()
	if !after.Due.IsZero() {
		at = q.due.Arg(after.Due)
	}
	return []any{q.m.Status.From.Arg(), q.due.Arg(cutoff), at, at, q.m.ID.After(after.ID), limit}
}

// args are ids as the database has them.
func (q *statements) args(ids []string) []any {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i], _ = q.m.ID.Arg(id)
	}
	return args
}

// skuArg is a SKU as the stock's table has it.
func (q *statements) skuArg(sku string) any {
	if arg, ok := q.m.Stock.SKU.Arg(sku); ok {
		return arg
	}
	return sku // nothing has it, and that fails the order
}
