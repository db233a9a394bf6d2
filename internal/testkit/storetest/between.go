package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var betweenPromises = []promise[shop]{
	{name: "DueBetweenIncludesBothEnds", test: betweenHasBothBorders},
	{name: "DueBetweenVisitsEveryOrderOfTheSpanOnce", test: betweenVisitsOnce},
	{name: "DueBetweenContinuesWhileOrdersAreClosed", test: betweenGoesOnWhileClosing},
}

// between reads all pages of DueBetween, calls each with every page, and returns the ids.
func (s *shop) between(from, to time.Time, limit int, each func([]orderclose.Order)) (ids []string) {
	s.Helper()
	return s.walk(limit, each, func(after orderclose.Order) ([]orderclose.Order, error) {
		return s.DueBetween(s.Context(), from, to, after, limit)
	})
}

// ignorePage ignores a page.
func ignorePage([]orderclose.Order) {}

// A span may begin in the past and end in the future: orders that are due and orders that will be due are returned alike.
func betweenHasBothBorders(t *testing.T, s *shop) {
	s.migrated()
	now := s.now()
	from, to := now.Add(-time.Minute), now.Add(time.Hour)
	var orders []orderclose.Order
	for id, due := range map[string]time.Time{
		"before": from.Add(-time.Millisecond), "first": from, "now": now, "last": to, "after": to.Add(time.Millisecond),
	} {
		orders = append(orders, orderclose.Order{ID: id, CreatedAt: from.Add(-time.Hour), Due: due})
	}
	s.bulk(orders)
	for _, span := range []struct {
		what     string
		from, to time.Time
		want     []string
	}{
		{"the span", from, to, []string{"first", "now", "last"}},
		{"a millisecond less at each end", from.Add(time.Millisecond), to.Add(-time.Millisecond), []string{"now"}},
		{"an end between two milliseconds", from, to.Add(999 * time.Microsecond), []string{"first", "now", "last"}},
		{"one moment", to, to, []string{"last"}},
		{"no moment", to, from, nil},
		{"no beginning", time.Time{}, now, []string{"before", "first", "now"}},
		{"nothing due", from.Add(time.Millisecond), now.Add(-time.Millisecond), nil},
	} {
		for _, limit := range []int{1, 100} {
			want(t, fmt.Sprintf("%s, in pages of %d", span.what, limit), s.between(span.from, span.to, limit, ignorePage), span.want)
		}
	}
}

func betweenVisitsOnce(t *testing.T, s *shop) {
	s.migrated()
	ids, last := s.overdue(500)
	from, to := last.Add(-50*time.Millisecond), last.Add(-20*time.Millisecond)
	within := ids[500-51*7 : 500-20*7] // seven are due at each millisecond
	for _, limit := range []int{1, 6, 7, 100, 5000} {
		want(t, fmt.Sprintf("orders in pages of %d", limit), s.between(from, to, limit, ignorePage), within)
		want(t, fmt.Sprintf("orders in pages of %d, from between two milliseconds", limit), s.between(from.Add(time.Microsecond), to, limit, ignorePage), within)
	}
	page := must.Get(s.DueBetween(t.Context(), from, to, orderclose.Order{ID: "z", Due: to}, 2))(t)
	want(t, "orders after the last", len(page), 0)
}

func betweenGoesOnWhileClosing(t *testing.T, s *shop) {
	s.migrated()
	ids, last := s.overdue(300)
	from := last.Add(-time.Second)
	want(t, "orders", s.between(from, last, 40, func(page []orderclose.Order) {
		for _, o := range page {
			s.close(o.ID)
		}
	}), ids)
	want(t, "orders afterwards", s.between(from, last, 40, ignorePage), nil)
}

// mappedBetween tests the same in a shop's own tables; shards are merged.
func mappedBetween(t *testing.T, s *mapped) {
	s.begin()
	orders := s.putThroughMonths()
	from, to := orders[15].Due, orders[45].Due
	s.put(s.Paid, orderclose.Order{ID: s.ID(2000), CreatedAt: s.monthsAgo(2), Due: s.monthsAgo(2)})
	for _, limit := range []int{1, 7, 100} {
		want(t, fmt.Sprintf("orders in pages of %d", limit), s.between(from, to, limit, ignorePage), idsDue(orders, from, to))
	}
	want(t, "orders without a beginning", s.between(time.Time{}, to, 7, ignorePage), idsDue(orders, time.Time{}, to))
	later := s.an(3000, time.Hour)
	s.put(s.Mapping.Status.From[0], later)
	want(t, "orders that are not due yet", s.between(later.Due, later.Due.Add(time.Hour), 7, ignorePage), []string{later.ID})
}

// idsDue returns the ids of the orders that are due in a span.
func idsDue(orders []orderclose.Order, from, to time.Time) (ids []string) {
	for _, o := range orders {
		if !o.Due.Before(from) && !o.Due.After(to) {
			ids = append(ids, o.ID)
		}
	}
	return ids
}
