package storetest

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

var countPromises = []promise{
	{"CountOverdueEqualsTheOrdersOfAllPages", countIsHowMany},
	{"CountOverdueHasUnpaidOrdersOnly", countHasUnpaidOnly},
	{"CountOverdueOfNoOrdersIsZero", countOfNoOrders},
	{"CountOverdueNowCountsByCategory", countNowByCategory},
	{"CountOverdueNowReadsTheOldestAndTheNewest", countNowReadsBothEnds},
}

func (s *shop) countOverdue(cutoff time.Time) int64 {
	s.Helper()
	n, err := s.CountOverdue(s.Context(), cutoff)
	s.must(err)
	return n
}

func countIsHowMany(t *testing.T, s *shop) {
	s.migrated()
	_, cutoff := s.overdue(2500) // seven are due at each millisecond
	s.bulk([]orderclose.Order{{ID: "later", CreatedAt: cutoff, Due: cutoff.Add(time.Millisecond)}})
	for _, row := range []struct {
		what   string
		cutoff time.Time
		want   int64
	}{
		{"all", cutoff, 2500},
		{"all but the latest", cutoff.Add(-time.Millisecond), 2493},
		{"all, the cutoff between two milliseconds", cutoff.Add(999 * time.Microsecond), 2500},
		{"one more", cutoff.Add(time.Millisecond), 2501},
		{"none", cutoff.Add(-time.Minute), 0},
	} {
		want(t, row.what, s.countOverdue(row.cutoff), row.want)
	}
	s.close("o00000", "o00001", "o02499")
	want(t, "all but three that were closed", s.countOverdue(cutoff), 2497)
}

func countHasUnpaidOnly(t *testing.T, s *shop) {
	s.migrated()
	s.orderOfEachStatus()
	want(t, "overdue", s.countOverdue(s.now()), 1)
	want(t, "overdue in two hours", s.countOverdue(s.now().Add(2*time.Hour)), 2)
}

func countOfNoOrders(t *testing.T, s *shop) {
	s.migrated()
	want(t, "overdue", s.countOverdue(s.now()), 0)
}

// countNow returns the categories of CountOverdueNow, and checks the time of the count.
func (s *shop) countNow(grace time.Duration) (all []store.OverdueCategory, more bool) {
	s.Helper()
	before := s.now()
	o, err := s.CountOverdueNow(s.Context(), grace)
	s.must(err)
	if o.At.Before(before) || o.At.After(s.now()) {
		s.Errorf("counted at %v, want the database's clock, %v", o.At, before)
	}
	return o.Categories, o.More
}

func countNowByCategory(t *testing.T, s *shop) {
	s.migrated()
	all, more := s.countNow(0)
	want(t, "categories of no orders", len(all), 0)
	want(t, "more than no orders", more, false)
	s.orderOfEachStatus() // one is unpaid and overdue by a minute, the category is book
	now := s.now()
	film := orderclose.Order{ID: "f", Category: "film", CreatedAt: now.Add(-2 * time.Hour), Due: now.Add(-61 * time.Minute)}
	s.bulk([]orderclose.Order{
		film, {ID: "g", Category: "film", CreatedAt: now, Due: now.Add(-59 * time.Minute)},
		{ID: "h", CreatedAt: now, Due: now.Add(-2 * time.Hour)},
	})
	all, more = s.countNow(time.Hour)
	want(t, "overdue by an hour", all, []store.OverdueCategory{{Orders: 1, Oldest: now.Add(-2 * time.Hour)}, {Category: "film", Orders: 1, Oldest: film.Due}})
	want(t, "more are overdue by an hour", more, false)
	all, _ = s.countNow(0)
	want(t, "overdue", []int64{all[0].Orders, all[1].Orders, all[2].Orders}, []int64{1, 1, 2})
	want(t, "the oldest film", all[2].Oldest, film.Due)
	s.close("f")
	all, _ = s.countNow(time.Hour)
	want(t, "categories overdue by an hour, after a close", len(all), 1)
}

// Many old orders, such as those of a paused category, must not hide the newest ones.
func countNowReadsBothEnds(t *testing.T, s *shop) {
	s.migrated()
	_, cutoff := s.overdue(1200) // of the category book
	film := orderclose.Order{ID: "the newest", Category: "film", CreatedAt: cutoff, Due: cutoff.Add(time.Millisecond)}
	s.bulk([]orderclose.Order{film})
	all, more := s.countNow(0)
	oldest := cutoff.Add(-1199 / 7 * time.Millisecond)
	want(t, "overdue", all, []store.OverdueCategory{{Category: "book", Orders: 999, Oldest: oldest}, {Category: "film", Orders: 1, Oldest: film.Due}})
	want(t, "there are more", more, true)
	s.exec("DELETE FROM orders WHERE id < 'o00300'")
	all, more = s.countNow(0)
	want(t, "overdue afterwards", []int64{all[0].Orders, all[1].Orders}, []int64{900, 1})
	want(t, "there are more afterwards", more, false)
}

// mappedCount tests the same in a shop's own tables; shards are summed.
func mappedCount(t *testing.T, s *mapped) {
	s.begin()
	want(t, "overdue of no orders", s.countOverdue(s.now()), 0)
	orders := s.putThroughMonths()
	without := s.an(3000, 0)
	without.Due = time.Time{}
	s.put(s.Mapping.Status.From, without, s.an(3001, time.Hour))
	s.put(s.Paid, s.an(3002, -time.Minute))
	want(t, "overdue", s.countOverdue(s.now()), int64(len(orders)))
	until := orders[30].Due
	want(t, "overdue by the time of one of them", s.countOverdue(until), int64(len(idsDue(orders, time.Time{}, until))))
	s.closing(orders[:20]...)
	want(t, "overdue after some were closed", s.countOverdue(s.now()), int64(len(orders)-20))
	now, more := s.countNow(0)
	want(t, "categories overdue now", len(now), 1)
	want(t, "orders overdue now", now[0], store.OverdueCategory{Orders: int64(len(orders) - 20), Oldest: orders[20].Due})
	want(t, "more are overdue now", more, false)
}
