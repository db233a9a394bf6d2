package storetest

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
)

var countPromises = []promise{
	{"CountOverdueEqualsTheOrdersOfAllPages", countIsHowMany},
	{"CountOverdueHasUnpaidOrdersOnly", countHasUnpaidOnly},
	{"CountOverdueOfNoOrdersIsZero", countOfNoOrders},
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
}
