package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var pagePromises = []promise[shop]{
	{name: "PagesAndReadsVisitEveryOverdueOrderOnce", test: pagesVisitOnce, tags: Dialect | Settings},
	{name: "PagesContinueWhileOrdersAreClosed", test: pagesGoOnWhileClosing},
	{name: "PagesAndSpansReturnTheOrdersFields", test: pageSaysWhatTheOrderIs},
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
		page := must.Get(read(after))(s)
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
	ids, cutoff := s.overdue(250)
	s.bulk([]orderclose.Order{
		{ID: "later", CreatedAt: cutoff, Due: cutoff.Add(time.Millisecond)},
		{ID: "paid", CreatedAt: cutoff, Due: cutoff.Add(-time.Second)},
	})
	must.Get(s.Pay(t.Context(), "paid", "p"))(t)
	for _, limit := range []int{1, 6, 7, 100, 5000} {
		want(t, fmt.Sprintf("orders in pages of %d", limit), s.pages(cutoff, limit, ignorePage), ids)
	}
	s.wantTurns(cutoff, ids, 3, 7, 100, 250, 0)
	between := cutoff.Add(999 * time.Microsecond) // two milliseconds
	want(t, "orders in pages, with a cutoff between two milliseconds", s.pages(between, 100, ignorePage), ids)
	want(t, "orders in a read, with a cutoff between two milliseconds", s.turn(between, false, 0), ids)
}

func pagesGoOnWhileClosing(t *testing.T, s *shop) {
	s.migrated()
	ids, cutoff := s.overdue(300)
	want(t, "orders", s.pages(cutoff, 40, func(page []orderclose.Order) {
		for _, o := range page {
			s.close(o.ID)
		}
	}), ids)
	want(t, "orders afterwards", s.pages(cutoff, 40, ignorePage), nil)
}

func pageSaysWhatTheOrderIs(t *testing.T, s *shop) {
	s.migrated()
	o := s.order("a", -time.Minute)
	want(t, "page", must.Get(s.Overdue(t.Context(), s.now(), orderclose.Order{}, 10))(t), []orderclose.Order{o})
	want(t, "span", must.Get(s.DueBetween(t.Context(), o.Due, o.Due, orderclose.Order{}, 10))(t), []orderclose.Order{o})
}
