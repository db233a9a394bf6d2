package db

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

// Page selects orders with a status that are due at to or before, after the order after.
type Page struct {
	status mapping.OneOf
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

// OpenPage returns a page of open orders without those that are excluded, with their attributes.
func (q *statements) OpenPage(to time.Time, after orderclose.Order, limit int) Page {
	if first := q.NotBefore(); after.Due.Before(first) {
		after = orderclose.Order{Due: first}
	}
	return Page{status: q.M.Status.From, to: to, after: after, limit: limit, where: q.Where, last: condition{q.Attributes(), nil}}
}

// EveryPage returns a page of all orders with the status, and when they were closed.
func (q *statements) EveryPage(status mapping.OneOf, to time.Time, after orderclose.Order, limit int) Page {
	return Page{status: status, to: to, after: after, limit: limit, last: condition{OrElse(First(q.M.ClosedAt).Name(), "NULL"), nil}}
}

// Of returns the page of orders with one of its statuses.
func (p Page) Of(status mapping.Value) Page {
	p.status = mapping.OneOf{status}
	return p
}

// ExcludedPage returns a page of the excluded orders of a table.
func (q *statements) ExcludedPage(t *Table, to time.Time, after orderclose.Order, limit int) Page {
	if first := q.NotBefore(); q.Where.SQL == "" && first.Before(to) {
		to = first
	}
	return Page{status: q.M.Status.From, to: to, after: after, limit: limit, where: q.excludedOf(t.Name), last: condition{"NULL", nil}}
}

// page writes the SELECT of a page of all tables. It merges the tables by due time and id, so the last order
// of a page is the position of the next page in every table. A table without such orders costs one index
// lookup. With Mapping.ByRule it merges the orders of each delay in the same way.
func (q *statements) page(in []*Table, delays []delay, p Page) (query string, args []any) {
	var parts []string
	for _, t := range in {
		for _, d := range delays {
			for _, status := range p.status {
				part, of := q.pageOf(t.Name, status, d, p)
				parts, args = append(parts, part), append(args, of...)
			}
		}
	}
	if len(parts) == 1 {
		return parts[0], args
	}
	for i, part := range parts {
		parts[i] = fmt.Sprintf("SELECT * FROM (%s) AS s%d", part, i)
	}
	all, order := strings.Join(parts, " UNION ALL "), p.order()
	return fmt.Sprintf("SELECT * FROM (%s) AS oc_all ORDER BY oc_due%[2]s, %[3]s%[2]s LIMIT ?", all, order, q.M.ID.InOrder("oc_id")), append(args, p.limit)
}

func (p Page) order() string {
	if p.newest {
		return " DESC"
	}
	return ""
}

// pageOf writes the SELECT of a page of one table, and of one delay. Its condition lets the database enter the index at the
// right position, so each row read is a row found: with a comparison of tuples it reads the
// whole range. A row without an id cannot be named, so it is skipped.
func (q *statements) pageOf(orders string, status mapping.Value, d delay, p Page) (query string, args []any) {
	id, at := mapping.Quote(q.M.ID.Column), mapping.Quote(q.M.Due.Column)
	where := q.mayHave(orders, d)
	if p.where.SQL != "" {
		where += " AND " + p.where.SQL
	}
	key := ""
	if p.marks {
		key = ", " + id + " AS oc_key"
		p.last, p.where, where = condition{"CASE WHEN TRUE" + where + " THEN 1 ELSE 0 END", p.where.Args}, condition{}, ""
	}
	from, last := q.pageFrom(d, p.after)
	to, before := q.pageTo(d, p)
	args = append(append([]any{}, p.last.Args...), status.Arg(), q.column.Arg(to), from, from, q.M.ID.After(last))
	args = append(args, before.Args...)
	query = fmt.Sprintf("SELECT %s AS oc_id, %s AS oc_category, %s AS oc_created, %s AS oc_due, %s AS oc_last%s FROM %s%s WHERE %s = ?",
		q.M.ID.Read(q.M.ID.Column), q.Category(), OrElse(q.M.Created.Name(), "NULL"), q.dueWith(orders, d), p.last.SQL, key,
		mapping.Quote(orders), q.D.Hint(q.M.DueIndex), mapping.Quote(q.M.Status.Column)) +
		fmt.Sprintf(" AND %[2]s <= ? AND %[2]s >= ? AND (%[2]s > ? OR %[1]s > ?) AND %[1]s IS NOT NULL%[5]s%[3]s ORDER BY %[2]s%[4]s, %[1]s%[4]s LIMIT ?",
			id, at, where, p.order(), before.SQL)
	return query, append(append(args, p.where.Args...), p.limit)
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
func (q *statements) pageTo(d delay, p Page) (to time.Time, before condition) {
	if p.before.Due.IsZero() || p.to.Before(p.before.Due) {
		return p.to.Add(-d.Duration), before
	}
	to = p.before.Due.Add(-d.Duration)
	if down := to.Truncate(q.column.Step()); d.others && down.Before(to) {
		return down, before // all orders with this value of the column were due earlier
	}
	id, _ := q.M.ID.Arg(p.before.ID)
	return to, condition{fmt.Sprintf(" AND (%s < ? OR %s < ?)", mapping.Quote(q.M.Due.Column), mapping.Quote(q.M.ID.Column)), []any{q.column.Arg(to), id}}
}

// OverdueRows writes the SELECT of what a read of the loop reads: of each range of w, which is a table or with Mapping.ByRule a table and
// a delay, the first rows of the index. It leaves out rows that are excluded or of another delay, but for the last one of a range that may
// have more; in that row oc_full is 1. Orders of one due time are sorted by oc_key. The window function sorts what was read, and reads no
// index.
func (q *statements) OverdueRows(in []*Table, delays []delay, w overdue.Window) (query string, args []any) {
	p := q.OpenPage(w.To, w.After, cmp.Or(w.Rows, overdue.MaxRows))
	if p.marks, p.newest = true, w.Newest; w.Newest {
		p.before = w.Before
	}
	var parts []string
	for _, t := range in {
		for _, d := range delays {
			for _, status := range p.status {
				part, of := q.pageOf(t.Name, status, d, p)
				parts = append(parts, fmt.Sprintf("SELECT %[1]d AS oc_range, s%[1]d.* FROM (%[2]s) AS s%[1]d", len(parts), part))
				args = append(args, of...)
			}
		}
	}
	numbered := "SELECT oc_all.*, ROW_NUMBER() OVER (PARTITION BY oc_range ORDER BY oc_due" + p.order() + ", oc_key" + p.order() + ") AS oc_row FROM (" +
		strings.Join(parts, " UNION ALL ") + ") AS oc_all"
	return fmt.Sprintf("SELECT oc_id, oc_category, oc_created, oc_due, oc_key, oc_last, CASE WHEN oc_row = %[1]d THEN 1 ELSE 0 END AS oc_full"+
		" FROM (%[2]s) AS oc_rows WHERE oc_last = 1 OR oc_row = %[1]d ORDER BY oc_due%[3]s, oc_key%[3]s", p.limit, numbered, p.order()), args
}

// AnyDue writes an expression. It is 1 if a table has an unpaid order that was due at a time or before, and else 0. Excluded orders count.
func (q *statements) AnyDue(in []*Table, at time.Time) (query string, args []any) {
	var parts []string
	for _, t := range in {
		for _, status := range q.M.Status.From {
			part, of := q.pageOf(t.Name, status, delay{}, q.OpenPage(at, orderclose.Order{}, 1))
			parts, args = append(parts, fmt.Sprintf("EXISTS (SELECT 1 FROM (%s) AS oc_due%d)", part, len(parts))), append(args, of...)
		}
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
	args := slices.Clone(q.Where.Args)
	if q.Where.SQL != "" {
		all = append(all, "("+q.Where.SQL+") IS NOT TRUE")
	}
	if first := q.NotBefore(); !first.IsZero() {
		all, args = append(all, q.DueOf(orders)+" < ?"), append(args, q.Due.Arg(first))
	}
	return condition{"(" + strings.Join(all, " OR ") + ")", args}
}

// Latest returns a time after which no order is due, but for those that are never closed.
func (q *statements) Latest() time.Time {
	if q.M.Due.Type == mapping.Timestamp {
		return time.Date(2038, 1, 19, 3, 14, 7, 0, time.UTC) // the last value of the type
	}
	return time.Date(orderclose.NeverDue.Year()-1, 12, 31, 0, 0, 0, 0, time.UTC) // a day is more than a time zone
}
