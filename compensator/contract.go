package compensator

import (
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
)

// contractTolerance is by how much the due times of a page may be out of order, and later than the
// given time: a column may hold local times, and clocks pass an hour twice when daylight saving ends.
const contractTolerance = time.Hour

var errNoID = errors.New("the store returned an order without an id")

// checkPage returns an error if a page of orders breaks the contract of the store's method. The
// order of ids is not checked, because each database has its own.
func checkPage(method string, page []orderclose.Order, to time.Time, after orderclose.Order, limit int) error {
	broken := func(format string, args ...any) error {
		return fmt.Errorf("the store's method %s returned %s: it must return at most limit orders, ordered by due time and id, that come after the given order and are due by the given time",
			method, fmt.Sprintf(format, args...))
	}
	if len(page) > limit {
		return broken("%d orders, and the limit is %d", len(page), limit)
	}
	last := after
	for _, o := range page {
		switch {
		case o.Due.After(to.Add(contractTolerance)):
			return broken("order %q, due at %s, for orders due by %s", o.ID, stamp(o.Due), stamp(to))
		case o.Due.Before(last.Due.Add(-contractTolerance)):
			return broken("order %q, due at %s, behind order %q, due at %s", o.ID, stamp(o.Due), last.ID, stamp(last.Due))
		case o.ID == after.ID && o.Due.Equal(after.Due):
			return broken("order %q again", o.ID)
		}
		last = o
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// cycleCheck finds a store whose pages begin again, which would never end. It remembers the last
// order of page 1, 2, 4, 8 and so on, and no order may follow itself. The zero value is ready to use.
type cycleCheck struct {
	pages, next int
	known       orderclose.Order
}

// add returns an error if the page has an order of an earlier page.
func (c *cycleCheck) add(page []orderclose.Order) error {
	for _, o := range page {
		if c.pages > 0 && o.ID == c.known.ID && o.Due.Equal(c.known.Due) {
			return fmt.Errorf("the store's method Overdue returned order %q of an earlier page again: a page must begin after the given order", o.ID)
		}
	}
	if c.pages++; c.pages > c.next {
		c.next, c.known = 2*c.pages, page[len(page)-1]
	}
	return nil
}
