package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
)

var pagePromises = []promise[shop]{
	{name: "PagesVisitEveryOverdueOrderOnce", test: pagesVisitOnce, tags: Dialect | Settings},
	{name: "PagesContinueWhileOrdersAreClosed", test: pagesGoOnWhileClosing},
	{name: "PageReturnsTheOrdersFields", test: pageSaysWhatTheOrderIs},
}

// overdue creates n orders that were due before the returned time, seven at each millisecond, and returns their ids in page order.
func (s *shop) overdue(n int) (ids []string, cutoff time.Time) {
	cutoff = s.now().Add(-time.Minute)
	orders := make([]orderclose.Order, n)
	for i := range orders {
		due := cutoff.Add(-time.Duration((n-1-i)/7) * time.Millisecond) // seven at each millisecond
		orders[i] = orderclose.Order{ID: fmt.Sprintf("o%05d", i), Category: "book", CreatedAt: due.Add(-time.Hour), Due: due}
		ids = append(ids, orders[i].ID)
	}
	rand.Shuffle(n, func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	s.bulk(orders)
	return ids, cutoff
}

// pages reads all pages of Overdue, calls each with every page, and returns the ids.
func (s *shop) pages(cutoff time.Time, limit int, each func([]orderclose.Order)) (ids []string) {
	s.Helper()
	return s.walk(limit, each, func(after orderclose.Order) ([]orderclose.Order, error) {
		return s.Overdue(s.Context(), cutoff, after, limit)
	})
}

// walk reads page after page until one is not full, and calls each with every page.
func (s *shop) walk(limit int, each func([]orderclose.Order), read func(after orderclose.Order) ([]orderclose.Order, error)) (ids []string) {
	s.Helper()
	var after orderclose.Order
	for {
		page, err := read(after)
		s.must(err)
		for _, o := range page {
			ids = append(ids, o.ID)
		}
		each(page)
		if len(page) < limit {
			return ids
		}
		after = page[len(page)-1]
	}
}

func pagesVisitOnce(t *testing.T, s *shop) {
	s.migrated()
	ids, cutoff := s.overdue(500)
	s.bulk([]orderclose.Order{
		{ID: "later", CreatedAt: cutoff, Due: cutoff.Add(time.Millisecond)},
		{ID: "paid", CreatedAt: cutoff, Due: cutoff.Add(-time.Second)},
	})
	_, err := s.Pay(t.Context(), "paid", "p")
	s.must(err)
	for _, limit := range []int{1, 6, 7, 100, 5000} {
		want(t, fmt.Sprintf("orders in pages of %d", limit), s.pages(cutoff, limit, func([]orderclose.Order) {}), ids)
	}
	want(t, "orders with a cutoff between two milliseconds",
		s.pages(cutoff.Add(999*time.Microsecond), 100, func([]orderclose.Order) {}), ids)
}

func pagesGoOnWhileClosing(t *testing.T, s *shop) {
	s.migrated()
	ids, cutoff := s.overdue(300)
	want(t, "orders", s.pages(cutoff, 40, func(page []orderclose.Order) {
		for _, o := range page {
			s.close(o.ID)
		}
	}), ids)
	want(t, "orders afterwards", s.pages(cutoff, 40, func([]orderclose.Order) {}), nil)
}

func pageSaysWhatTheOrderIs(t *testing.T, s *shop) {
	s.migrated()
	o := s.order("a", -time.Minute)
	page, err := s.Overdue(t.Context(), s.now(), orderclose.Order{}, 10)
	s.must(err)
	want(t, "page", page, []orderclose.Order{o})
}
