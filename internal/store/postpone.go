package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// ErrDueGenerated says that the database computes the due times, so that they cannot be changed.
var ErrDueGenerated = errors.New("the database computes the due times: give the column an expression as its default instead (docs/mapping.md, Due times)")

// ErrNoCreated says that the mapping names no column with the times at which orders were created.
var ErrNoCreated = errors.New("topics.yaml maps no time of creation (key orders.created)")

// ErrOutOfReach says that an order would be in a month's table that is not read any more when the
// order is due.
var ErrOutOfReach = errors.New("the order's table would not be read any more when the order is due")

// PostponeResult says what Postpone did with one order.
type PostponeResult string

// The results of Postpone. Only Postponed has changed the order.
const (
	Postponed       PostponeResult = "postponed"
	PostponedBefore PostponeResult = "postponed_before" // the order has the later due time already
	PostponeNotOpen PostponeResult = "not_open"         // the order was paid or closed meanwhile
	PostponeMoved   PostponeResult = "moved"            // the order has another due time meanwhile
	PostponeGone    PostponeResult = "not_found"        // the database has no such order
)

// CheckPostpone reports why Postpone cannot work: it returns an error that wraps ErrDueGenerated, or
// orderclose.ErrUnavailable if the database failed. It does not check tables of SQLite.
func (s *Store) CheckPostpone(ctx context.Context) error {
	if s.q.m.ByRule {
		return nil
	}
	names, err := s.orderTables(ctx)
	if err != nil {
		return err
	}
	schema, err := s.describe(ctx, names...)
	if err != nil {
		return s.failed(ctx, err, readDefinitions)
	}
	column := s.q.m.Due.Column
	for _, name := range names {
		if schema[name].Columns[strings.ToLower(column)].Generated {
			return fmt.Errorf("column %s.%s is generated: %w", name, column, ErrDueGenerated)
		}
	}
	return nil
}

// CheckCreated returns ErrNoCreated if it is not known when orders were created.
func (s *Store) CheckCreated() error {
	if s.q.m.Created == nil {
		return ErrNoCreated
	}
	return nil
}

// OrdersTable returns the table of orders as the mapping writes it: a pattern, if there is a table
// for each month.
func (s *Store) OrdersTable() string { return s.q.m.Orders }

// InReach reports why an order cannot have the due time due: its table would not be read any more.
// The error wraps ErrOutOfReach.
func (s *Store) InReach(o orderclose.Order, due time.Time) error {
	month, known := s.q.tables.month(requestOf(o))
	// A sweep may find the order in the month after its due time.
	if least := int(mapping.MonthOf(due, s.q.tables.loc)-month) + 2; known && least > s.q.m.Shards.Months {
		return fmt.Errorf("order %q: %w: set orders.shards.months to %d or more", o.ID, ErrOutOfReach, least)
	}
	return nil
}

// Postpone adds by, whole seconds, to the due times of orders, in one transaction, if the orders are
// still open and due at the Due that each has here; CreatedAt helps to find the table of its month.
// It returns a result for each order. A repeated call changes nothing. A new due time that is an hour
// that clocks show twice means the later one, as always. On an error no order was changed. The error
// wraps orderclose.ErrUnavailable if the database failed, and orderclose.ErrContended if another
// transaction locks the row of an order for too long.
func (s *Store) Postpone(ctx context.Context, orders []orderclose.Order, by time.Duration) ([]PostponeResult, error) {
	if len(orders) == 0 {
		return nil, nil
	}
	reqs := make([]orderclose.CloseRequest, len(orders))
	for i, o := range orders {
		reqs[i] = requestOf(o)
	}
	out := make([]PostponeResult, len(orders))
	err := s.withOrders(ctx, reqs, func(c *closing) (err error) {
		for i, o := range orders {
			if out[i], err = c.postpone(o, by); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postpone %d orders from %q: %w", len(orders), orders[0].ID, err)
	}
	return out, nil
}

// postpone moves the due time of one order, whose row lockOrders has locked.
func (c *closing) postpone(o orderclose.Order, by time.Duration) (PostponeResult, error) {
	row, found := c.orders[o.ID]
	table := c.open[o.ID]
	due := c.s.q.due
	later := due.Arg(o.Due.Add(by))
	switch {
	case !found:
		return PostponeGone, nil
	case table == nil:
		return PostponeNotOpen, nil
	case row.due.IsZero():
		return PostponeMoved, nil
	case due.Arg(row.due) == later:
		return PostponedBefore, nil
	}
	if c.s.q.m.ByRule {
		return c.postponeByRule(table, o, by)
	}
	id := c.s.q.args([]string{o.ID}) //mutant:postponed-again
	res := c.tx.Exec(c.s.q.postpone(table.name), slices.Concat([]any{later}, c.s.q.lockArgs(c.now), id, []any{c.s.q.m.Status.From.Arg(), due.Arg(o.Due)})...)
	switch {
	case res.Error != nil:
		return "", res.Error
	case res.RowsAffected == 0:
		return PostponeMoved, nil
	}
	return Postponed, nil
}

// postpone writes the compare-and-set of a due time. Its arguments are the new due time, the lock, the id, the
// open status, and the due time before.
func (q *statements) postpone(orders string) string {
	due := mapping.Quote(q.m.Due.Column)
	set := due + " = ?" + changeLock("", q.m.Version, q.m.Lock)
	return fmt.Sprintf("UPDATE %s%s SET %s WHERE %s = ? AND %s%s = ? AND %[5]s%[7]s = ?", mapping.Quote(orders), q.d.hint(q.m.ID.Index), set,
		mapping.Quote(q.m.ID.Column), q.d.Unindexed, mapping.Quote(q.m.Status.Column), due)
}
