package read

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// CountLimit bounds how many orders of a table CountOrders counts for each number: a shop may have a hundred
// million orders with a status. A number that is not smaller says at least how many there are.
const CountLimit = 1_000_000

// OrderCounts says how many orders have which state. An operator who sees the numbers notices a
// mapping that is wrong. Overdue, Waiting, Excluded and Never are together From.
type OrderCounts struct {
	At       time.Time `json:"at"`       // the database's clock
	From     int64     `json:"from"`     // unpaid orders: those with the status Status.From
	To       int64     `json:"to"`       // orders with the status Status.To
	Overdue  int64     `json:"overdue"`  // unpaid orders that are due
	Waiting  int64     `json:"waiting"`  // unpaid orders that are not due yet
	Excluded int64     `json:"excluded"` // unpaid orders with a due time that Mapping.Where or Mapping.NotBefore excludes
	Never    int64     `json:"never"`    // unpaid orders whose due time means never: NULL, 0, or beyond what the column's type can be
	// Before2000 are overdue orders that are due before the year 2000, and BeforeCreated those that are due before they were created: both
	// of the first OddLimit orders by due time. Such a due time may mean that the order has none.
	Before2000    int64 `json:"before_2000,omitempty"`
	BeforeCreated int64 `json:"before_created,omitempty"`
	// Oldest is the first due time of the overdue orders, and Farthest the last one of the waiting orders; the zero time: there are none.
	Oldest   time.Time `json:"oldest"`
	Farthest time.Time `json:"farthest"`
	// Cut says that the server has ended a count after 2 s. The numbers say at least how many orders there are, and Never and the times say nothing.
	Cut bool `json:"cut,omitempty"`
}

// CountOrders counts the orders of all tables, for each number up to CountLimit of each table. It reads an entry of
// the index on status and due time for each order, and without that index the whole table. After a count that the server has ended it counts
// fewer. Never is what is left of From, at least. The error wraps orderclose.ErrUnavailable if the database failed.
func (s *Reader) CountOrders(ctx context.Context) (c OrderCounts, err error) {
	ctx, rows := s.LimitReads(ctx), CountLimit
	if c.At, err = s.Now(ctx); err != nil {
		return c, err
	}
	in, err := s.AllTables(ctx)
	for _, t := range in {
		if err == nil {
			err = s.countTable(ctx, t, &c, &rows)
		}
	}
	if err == nil {
		err = c.upTo(&rows, func(int) error { return s.countOdd(ctx, &c) })
	}
	if !c.Cut {
		c.Never = max(c.From-c.Overdue-c.Waiting-c.Excluded, 0) //mutant:never-uncounted
	}
	return c, s.FailedTo(ctx, err, "count the orders")
}

// upTo counts up to a number of rows. If the server ends the count, it counts fewer, and so do all counts that follow.
func (c *OrderCounts) upTo(rows *int, count func(rows int) error) error {
	for ; *rows > 0; *rows /= 100 {
		if err := count(*rows); !db.IsSlow(err) {
			return err
		}
		c.Cut = true
	}
	return nil
}

// OddLimit bounds how many orders with an improbable due time are counted.
const OddLimit = 100

// year2000 is before every due time that a shop of today has written on purpose.
var year2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// countOdd counts orders with improbable due times.
func (s *Reader) countOdd(ctx context.Context, c *OrderCounts) error {
	first, err := s.DueBetween(ctx, time.Time{}, c.At.AddDate(1, 0, 0), orderclose.Order{}, OddLimit)
	for _, o := range first {
		if o.Due.Before(year2000) {
			c.Before2000++
		}
		if o.CreatedAt.After(o.Due) {
			c.BeforeCreated++
		}
	}
	return err
}

// HasClosed reports whether any order was closed in this database.
func (s *Reader) HasClosed(ctx context.Context) (bool, error) {
	n, err := s.Count(ctx, "SELECT 1 FROM receipts LIMIT 1", nil)
	return n > 0, s.FailedTo(ctx, err, "look for a receipt")
}

func (s *Reader) countTable(ctx context.Context, t *db.Table, c *OrderCounts, rows *int) (err error) {
	m := s.Q.M
	withStatus := "SELECT 1 FROM " + mapping.Quote(t.Name) + s.Q.D.Hint(s.Q.M.DueIndex) + " WHERE " + mapping.Quote(m.Status.Column) + " IN ? LIMIT ?"
	count := func(to *int64, of func(rows int) (int64, error)) {
		if err == nil {
			err = c.upTo(rows, func(rows int) error {
				n, err := of(rows)
				*to += n
				return err
			})
		}
	}
	for to, status := range map[*int64]mapping.OneOf{&c.From: m.Status.From, &c.To: {m.Status.To}} {
		count(to, func(rows int) (int64, error) { return s.Count(ctx, withStatus, []any{status.Args(), rows}) })
	}
	count(&c.Overdue, func(rows int) (int64, error) {
		n, oldest, _, err := s.countDue(ctx, t, s.Q.OpenPage(c.At, orderclose.Order{}, rows))
		if n > 0 && (c.Oldest.IsZero() || oldest.Before(c.Oldest)) {
			c.Oldest = oldest
		}
		return n, err
	})
	if s.Q.Excludes() {
		count(&c.Excluded, func(rows int) (int64, error) {
			return s.CountPage(ctx, t, s.Q.ExcludedPage(t, s.Q.Latest(), orderclose.Order{}, rows))
		})
	}
	count(&c.Waiting, func(rows int) (int64, error) {
		next := orderclose.Order{Due: c.At.Add(s.Q.Due.Step())} // the column's next value, since Arg rounds down
		n, _, farthest, err := s.countDue(ctx, t, s.Q.OpenPage(s.Q.Latest(), next, rows))
		if farthest.After(c.Farthest) {
			c.Farthest = farthest
		}
		return n, err
	})
	return err
}

// countDue counts the orders of a page of a table, and returns the first and the last due time.
func (s *Reader) countDue(ctx context.Context, t *db.Table, p db.Page) (n int64, from, to time.Time, err error) {
	tx := s.Gorm.WithContext(ctx)
	query, args, err := s.Page(tx, []*db.Table{t}, p)
	if err != nil {
		return 0, from, to, err
	}
	err = db.EachRow(tx, "SELECT COUNT(*), MIN(oc_due), MAX(oc_due) FROM ("+query+") AS oc_all", args, func(rows *sql.Rows) error {
		var first, last any
		err := rows.Scan(&n, &first, &last)
		for value, at := range map[*any]*time.Time{&first: &from, &last: &to} {
			if err == nil && n > 0 {
				*at, _, err = s.Q.Due.Decode(*value)
			}
		}
		return err
	})
	return n, from, to, err
}

// Categories returns the category of each order that exists, by id; an order without a category
// has an empty one. It reads by key without a lock. The error is ErrNoCategory if the mapping
// names no category, and wraps orderclose.ErrUnavailable if the database failed.
func (s *Reader) Categories(ctx context.Context, reqs []orderclose.CloseRequest) (map[string]string, error) {
	if s.Q.M.Category == "" {
		return nil, closetx.ErrNoCategory
	}
	c, err := s.byKey(ctx, "categories", reqs)
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(c.Orders))
	for id, row := range c.Orders {
		found[id] = row.Category
	}
	return found, nil
}

// Unpaid returns, by id, whether each of the orders that exist is unpaid. It reads by key without a lock. The error wraps
// orderclose.ErrUnavailable if the database failed.
func (s *Reader) Unpaid(ctx context.Context, reqs []orderclose.CloseRequest) (map[string]bool, error) {
	c, err := s.byKey(ctx, "status", reqs)
	if err != nil {
		return nil, err
	}
	unpaid := make(map[string]bool, len(c.Orders))
	for id := range c.Orders {
		unpaid[id] = c.Open[id] != nil
	}
	return unpaid, nil
}

// byKey reads the rows of orders without a lock. what names in an error which part of them the caller needs.
func (s *Reader) byKey(ctx context.Context, what string, reqs []orderclose.CloseRequest) (*closetx.Rows, error) {
	if len(reqs) == 0 {
		return &closetx.Rows{}, nil
	}
	rows, err := s.ReadForClose(ctx, "", reqs)
	if err != nil {
		return nil, fmt.Errorf("read the %s of %d orders from %q: %w", what, len(reqs), reqs[0].OrderID, s.Explain(ctx, err))
	}
	return rows, nil
}
