package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var countPromises = []promise[shop]{
	{name: "SpansHaveUnpaidOrdersOnly", test: spansHaveUnpaidOnly},
	{name: "OverdueNowReturnsUnpaidOrdersOnly", test: overdueNowHasUnpaidOnly},
	{name: "OverdueNowReadsTheOldestAndTheNewest", test: overdueNowReadsBothEnds},
}

func spansHaveUnpaidOnly(t *testing.T, s *shop) {
	s.migrated()
	from, until := s.now().Add(-2*time.Hour), s.now().Add(2*time.Hour)
	finds := func(what string, ids ...string) {
		t.Helper()
		want(t, what+" of a span", s.between(from, until, 100, ignorePage), ids)
		want(t, what+" of a span without a beginning", s.between(time.Time{}, until, 100, ignorePage), ids)
	}
	finds("no orders")
	s.orderOfEachStatus()
	finds("orders", "overdue", "unpaid")
}

// overdueNow returns the orders of OverdueNow, oldest first, and checks the clock that it returns.
func (s *shop) overdueNow(grace time.Duration) (orders []orderclose.Order, more bool) {
	s.Helper()
	before := s.now()
	orders, now, more, err := s.OverdueNow(s.Context(), grace)
	s.must(err)
	expect.That(s, !now.Before(before) && !now.After(s.now()), "read at %v, want the database's clock, %v", now, before)
	slices.SortStableFunc(orders, func(a, b orderclose.Order) int { return a.Due.Compare(b.Due) })
	return orders, more
}

func overdueNowHasUnpaidOnly(t *testing.T, s *shop) {
	s.migrated()
	none, more := s.overdueNow(0)
	want(t, "no orders", len(none), 0)
	want(t, "more than no orders", more, false)
	s.orderOfEachStatus()
	now := s.now()
	film := orderclose.Order{ID: "f", Category: "film", CreatedAt: now.Add(-2 * time.Hour), Due: now.Add(-61 * time.Minute)}
	s.bulk([]orderclose.Order{film, {ID: "g", Category: "film", CreatedAt: now, Due: now.Add(-59 * time.Minute)}})
	hour, more := s.overdueNow(time.Hour)
	want(t, "overdue by an hour", hour, []orderclose.Order{film})
	want(t, "more are overdue by an hour", more, false)
	all, _ := s.overdueNow(0)
	want(t, "overdue", []string{all[0].ID, all[1].ID, all[2].ID}, []string{"f", "g", "overdue"})
	want(t, "overdue orders", len(all), 3)
}

// Many old orders, such as those of a paused category, must not hide the newest ones.
func overdueNowReadsBothEnds(t *testing.T, s *shop) {
	s.migrated()
	ids, cutoff := s.overdue(1200)
	film := orderclose.Order{ID: "the newest", Category: "film", CreatedAt: cutoff, Due: cutoff.Add(time.Millisecond)}
	s.bulk([]orderclose.Order{film})
	some, more := s.overdueNow(0)
	seen := map[string]bool{}
	for _, o := range some {
		seen[o.ID] = true
	}
	want(t, "orders", len(seen), 1000)
	want(t, "the oldest", some[0].ID, ids[0])
	want(t, "the newest", some[len(some)-1], film)
	want(t, "there are more", more, true)
	s.exec("DELETE FROM orders WHERE id < 'o00300'")
	some, more = s.overdueNow(0)
	want(t, "orders afterwards", len(some), 901)
	want(t, "there are more afterwards", more, false)
}

// mappedCount tests the same in a shop's own tables; shards are summed.
func mappedCount(t *testing.T, s *mapped) {
	s.begin()
	orders := s.putThroughMonths()
	without := s.an(3000, 0)
	without.Due = time.Time{}
	s.put(s.Mapping.Status.From[0], without, s.an(3001, time.Hour))
	s.put(s.Paid, s.an(3002, -time.Minute))
	s.closing(orders[:20]...)
	now, more := s.overdueNow(0)
	want(t, "orders overdue now", len(now), len(orders)-20)
	want(t, "the oldest order overdue now", now[0].Due, orders[20].Due)
	want(t, "more are overdue now", more, false)
}
