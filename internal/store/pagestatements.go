package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// page selects orders with a status that are due at to or before, after the order after.
type page struct {
	status mapping.Value
	to     time.Time
	after  orderclose.Order
	limit  int
	where  condition // further condition; rows that do not meet it are read and skipped
	last   condition // the expression of the last column
	newest bool      // the latest due time comes first
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
	from, last := q.pageFrom(d, p.after)
	args = append(append([]any{}, p.last.args...), p.status.Arg(), q.column.Arg(p.to.Add(-d.Duration)), from, from, q.m.ID.After(last))
	query = fmt.Sprintf("SELECT %s AS oc_id, %s AS oc_category, %s AS oc_created, %s AS oc_due, %s AS oc_last FROM %s%s WHERE %s = ?",
		q.m.ID.Read(q.m.ID.Column), orElse(q.m.Category, "''"), orElse(q.m.Created.Name(), "NULL"), q.dueWith(orders, d), p.last.sql,
		mapping.Quote(orders), q.d.hint(q.m.DueIndex), mapping.Quote(q.m.Status.Column)) +
		fmt.Sprintf(" AND %[2]s <= ? AND %[2]s >= ? AND (%[2]s > ? OR %[1]s > ?) AND %[1]s IS NOT NULL%[3]s ORDER BY %[2]s%[4]s, %[1]s%[4]s LIMIT ?",
			id, at, where, p.order())
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
