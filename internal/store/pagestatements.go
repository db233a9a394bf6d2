package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// page selects orders with a status that are due at to or before, after the order after.
type page struct {
	status mapping.Value
	to     time.Time
	after  orderclose.Order
	limit  int
	where  condition        // further condition; rows that do not meet it are read and skipped
	last   condition        // the expression of the last column
	newest bool             // the latest due time comes first
	before orderclose.Order // the page ends before this order; the zero Order: it ends with to
	// marks makes the last column say, by 1 or 0, whether a row meets where and has the delay of its range. So rows that do not are rows of
	// the page too.
	marks bool
}

// openPage returns a page of open orders without those that are excluded, with their attributes.
func (q *statements) openPage(to time.Time, after orderclose.Order, limit int) page {
	if after.Due.Before(q.m.NotBefore) {
		after = orderclose.Order{Due: q.m.NotBefore}
	}
	return page{status: q.m.Status.From, to: to, after: after, limit: limit, where: q.where, last: condition{q.attributes(), nil}}
}

// everyPage returns a page of all orders with the status, and when they were closed.
func (q *statements) everyPage(status mapping.Value, to time.Time, after orderclose.Order, limit int) page {
	return page{status: status, to: to, after: after, limit: limit, last: condition{orElse(first(q.m.ClosedAt).Name(), "NULL"), nil}}
}

// excludedPage returns a page of the excluded orders of a table.
func (q *statements) excludedPage(t *table, to time.Time, after orderclose.Order, limit int) page {
	return page{status: q.m.Status.From, to: to, after: after, limit: limit, where: q.excludedOf(t.name), last: condition{"NULL", nil}}
}

// page writes the SELECT of a page of all tables. It merges the tables by due time and id, so the last order
// of a page is the position of the next page in every table. A table without such orders costs one index
// lookup. With Mapping.ByRule it merges the orders of each delay in the same way.
func (q *statements) page(in []*table, delays []delay, p page) (query string, args []any) {
	var parts []string
	for _, t := range in {
		for _, d := range delays {
			part, of := q.pageOf(t.name, d, p)
			parts, args = append(parts, part), append(args, of...)
		}
	}
	if len(parts) == 1 {
		return parts[0], args
	}
	for i, part := range parts {
		parts[i] = fmt.Sprintf("SELECT * FROM (%s) AS s%d", part, i)
	}
	return strings.Join(parts, " UNION ALL ") + fmt.Sprintf(" ORDER BY oc_due%[1]s, oc_id%[1]s LIMIT ?", p.order()), append(args, p.limit)
}

func (p page) order() string {
	if p.newest {
		return " DESC"
	}
	return ""
}

// pageOf writes the SELECT of a page of one table, and of one delay. Its condition lets the database enter the index at the
// right position, so each row read is a row found: with a comparison of tuples it reads the
// whole range. A row without an id cannot be named, so it is skipped.
func (q *statements) pageOf(orders string, d delay, p page) (query string, args []any) {
	id, at := mapping.Quote(q.m.ID.Column), mapping.Quote(q.m.Due.Column)
	where := q.mayHave(orders, d)
	if p.where.sql != "" {
		where += " AND " + p.where.sql
	}
	key := ""
	if p.marks {
		key = ", " + id + " AS oc_key"
		p.last, p.where, where = condition{"CASE WHEN TRUE" + where + " THEN 1 ELSE 0 END", p.where.args}, condition{}, ""
	}
	from, last := q.pageFrom(d, p.after)
	to, before := q.pageTo(d, p)
	args = append(append([]any{}, p.last.args...), p.status.Arg(), q.column.Arg(to), from, from, q.m.ID.After(last))
	args = append(args, before.args...)
	query = fmt.Sprintf("SELECT %s AS oc_id, %s AS oc_category, %s AS oc_created, %s AS oc_due, %s AS oc_last%s FROM %s%s WHERE %s = ?",
		q.m.ID.Read(q.m.ID.Column), orElse(q.m.Category, "''"), orElse(q.m.Created.Name(), "NULL"), q.dueWith(orders, d), p.last.sql, key,
		mapping.Quote(orders), q.d.hint(q.m.DueIndex), mapping.Quote(q.m.Status.Column)) +
		fmt.Sprintf(" AND %[2]s <= ? AND %[2]s >= ? AND (%[2]s > ? OR %[1]s > ?) AND %[1]s IS NOT NULL%[5]s%[3]s ORDER BY %[2]s%[4]s, %[1]s%[4]s LIMIT ?",
			id, at, where, p.order(), before.sql)
	return query, append(append(args, p.where.args...), p.limit)
}

// pageFrom returns where a page begins: the value of the column, and the last id that has it. The due times of
// another delay may lie between the values of the column.
func (q *statements) pageFrom(d delay, after orderclose.Order) (from any, id string) {
	if after.Due.IsZero() {
		return q.column.Oldest(), after.ID
	}
	at := after.Due.Add(-d.Duration)
	if down := at.Truncate(q.column.Step()); d.others && down.Before(at) {
		return q.column.Arg(down.Add(q.column.Step())), ""
	}
	return q.column.Arg(at), after.ID
}

// pageTo returns the last due time of a page, less the delay, and the further condition of a page that ends before an order.
func (q *statements) pageTo(d delay, p page) (to time.Time, before condition) {
	if p.before.Due.IsZero() || p.to.Before(p.before.Due) {
		return p.to.Add(-d.Duration), before
	}
	to = p.before.Due.Add(-d.Duration)
	if down := to.Truncate(q.column.Step()); d.others && down.Before(to) {
		return down, before // all orders with this value of the column were due earlier
	}
	id, _ := q.m.ID.Arg(p.before.ID)
	return to, condition{fmt.Sprintf(" AND (%s < ? OR %s < ?)", mapping.Quote(q.m.Due.Column), mapping.Quote(q.m.ID.Column)), []any{q.column.Arg(to), id}}
}

// overdueRows writes the SELECT of what a read of the loop reads: of each range of w, which is a table or with Mapping.ByRule a table and
// a delay, the first rows of the index. It leaves out rows that are excluded or of another delay, but for the last one of a range that may
// have more; in that row oc_full is 1. Orders of one due time are sorted by oc_key. The window function sorts what was read, and reads no
// index.
func (q *statements) overdueRows(in []*table, delays []delay, w overdue.Window) (query string, args []any) {
	p := q.openPage(w.To, w.After, cmp.Or(w.Rows, overdue.MaxRows))
	if p.marks, p.newest = true, w.Newest; w.Newest {
		p.before = w.Before
	}
	var parts []string
	for _, t := range in {
		for _, d := range delays {
			part, of := q.pageOf(t.name, d, p)
			parts = append(parts, fmt.Sprintf("SELECT %[1]d AS oc_range, s%[1]d.* FROM (%[2]s) AS s%[1]d", len(parts), part))
			args = append(args, of...)
		}
	}
	numbered := "SELECT oc_all.*, ROW_NUMBER() OVER (PARTITION BY oc_range ORDER BY oc_due" + p.order() + ", oc_key" + p.order() + ") AS oc_row FROM (" +
		strings.Join(parts, " UNION ALL ") + ") AS oc_all"
	return fmt.Sprintf("SELECT oc_id, oc_category, oc_created, oc_due, oc_key, oc_last, CASE WHEN oc_row = %[1]d THEN 1 ELSE 0 END AS oc_full"+
		" FROM (%[2]s) AS oc_rows WHERE oc_last = 1 OR oc_row = %[1]d ORDER BY oc_due%[3]s, oc_key%[3]s", p.limit, numbered, p.order()), args
}

// anyDue writes an expression. It is 1 if a table has an unpaid order that was due at a time or before, and else 0. Excluded orders count.
func (q *statements) anyDue(in []*table, at time.Time) (query string, args []any) {
	var parts []string
	for i, t := range in {
		part, of := q.pageOf(t.name, delay{}, q.openPage(at, orderclose.Order{}, 1))
		parts, args = append(parts, fmt.Sprintf("EXISTS (SELECT 1 FROM (%s) AS oc_due%d)", part, i)), append(args, of...)
	}
	if len(parts) == 0 {
		return "0", nil
	}
	return "CASE WHEN " + strings.Join(parts, " OR ") + " THEN 1 ELSE 0 END", args
}

// excludedOf writes the condition of orders that Mapping.Where or Mapping.NotBefore excludes. The comparison of
// a column that is NULL is neither true nor false.
func (q *statements) excludedOf(orders string) condition {
	var all []string
	args := slices.Clone(q.where.args)
	if q.where.sql != "" {
		all = append(all, "("+q.where.sql+") IS NOT TRUE")
	}
	if !q.m.NotBefore.IsZero() {
		all, args = append(all, q.dueOf(orders)+" < ?"), append(args, q.due.Arg(q.m.NotBefore))
	}
	return condition{"(" + strings.Join(all, " OR ") + ")", args}
}
