package store

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// overdueHalf is how many of the oldest and how many of the newest orders CountOverdueNow reads at most.
const overdueHalf = 500

// OverdueNow says which unpaid orders the pipeline should have closed.
type OverdueNow struct {
	At         time.Time         // the database's clock
	Categories []OverdueCategory // by name; a category without such orders is not there
	More       bool              // not all orders were read, so there may be more
}

// OverdueCategory is the part of OverdueNow in one category.
type OverdueCategory struct {
	Category string
	Orders   int64
	Oldest   time.Time // the earliest due time of the orders that were read
}

// CountOverdueNow counts the unpaid orders that have been due for longer than the grace, by the database's
// clock. It leaves out orders that Mapping.Where or Mapping.NotBefore excludes. It reads at most 1,000 rows
// of the index on status and due time, whatever the mapping excludes: the 500 oldest, and the 500 newest of the
// others. So orders that stay overdue on purpose never hide new ones. The error wraps
// orderclose.ErrUnavailable if the database failed.
func (s *Store) CountOverdueNow(ctx context.Context, grace time.Duration) (o OverdueNow, err error) {
	if o.At, err = s.Now(ctx); err != nil {
		return o, err
	}
	in, err := s.allTables(ctx)
	if err != nil {
		return o, err
	}
	c := overdueCount{q: s.q, tx: s.gorm.WithContext(ctx), cutoff: o.At.Add(-grace), left: overdueHalf, found: map[string]OverdueCategory{}}
	last := make([]orderclose.Order, len(in))
	for i, t := range slices.Backward(in) { // the oldest month first
		if last[i], err = c.read(t.oldest, last[i]); err != nil {
			return o, s.failed(ctx, err, "count the oldest overdue orders")
		}
	}
	if c.left == 0 {
		c.left = overdueHalf
		for i, t := range in {
			if _, err = c.read(t.newest, last[i]); err != nil {
				return o, s.failed(ctx, err, "count the newest overdue orders")
			}
		}
		o.More = c.left == 0
	}
	o.Categories = slices.SortedFunc(maps.Values(c.found), func(a, b OverdueCategory) int { return cmp.Compare(a.Category, b.Category) })
	return o, nil
}

// overdueCount is a running CountOverdueNow.
type overdueCount struct {
	q      *statements
	tx     *gorm.DB
	cutoff time.Time
	left   int // how many orders may still be read
	found  map[string]OverdueCategory
}

// read counts the orders that table.oldest or table.newest selects after an order, and returns the last one.
func (c *overdueCount) read(query string, after orderclose.Order) (last orderclose.Order, err error) {
	last = after
	if c.left == 0 {
		return last, nil
	}
	args := append(slices.Clone(c.q.where.args), c.q.openArgs(c.cutoff, after, c.left, nil)...)
	err = eachRow(c.tx, query, args, func(rows *sql.Rows) error {
		var due, created any
		var included bool
		if err := rows.Scan(&last.ID, nullable(&last.Category), &created, &due, &included); err != nil {
			return err
		}
		if last.Due, _, err = c.q.due.Decode(due); err != nil {
			return unavailable(c.tx.Statement.Context, err) // the mapping is wrong, not an order
		}
		c.left--
		if !included {
			return nil
		}
		one := c.found[last.Category]
		one.Category, one.Orders = last.Category, one.Orders+1
		if one.Oldest.IsZero() || last.Due.Before(one.Oldest) {
			one.Oldest = last.Due
		}
		c.found[last.Category] = one
		return nil
	})
	return last, err
}
