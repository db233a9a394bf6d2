package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var sweepPromises = []promise[shop]{
	{name: "AnHourHasTheCountsOfAllItsTurns", test: hourCounts, tags: Dialect | Settings},
	{name: "AnHourThatFinishedStaysFinished", test: hourEnds, tags: Dialect},
	{name: "HoursAreKeptForNinetyDays", test: oldHours},
	{name: "ALeaseHasOneHolderUntilItEnds", test: leases, tags: Dialect | Settings},
	{name: "OfManyOneTakesALease", test: leaseOfMany, tags: Dialect},
	{name: "ClosedOrdersArePagedByTheTimeOfTheirClose", test: closedBetween, tags: Settings},
	{name: "ThePositionOfEachRecheckIsKept", test: keptRecheck},
}

// within checks that at is between begin and now, by the database's clock.
func (s *shop) within(what string, at, begin time.Time) {
	s.Helper()
	end := s.now()
	expect.That(s, !at.Before(begin) && !at.After(end), "%s is %v, want it between %v and %v", what, at, begin, end)
}

func (s *shop) hour(pipeline string, begin time.Time) overdue.Hour {
	s.Helper()
	return must.Get(s.SweepHour(s.Context(), pipeline, begin))(s)
}

func hourCounts(t *testing.T, s *shop) {
	s.migrated()
	begin := s.now().UTC().Truncate(time.Hour)
	want(t, "an hour without a row", s.hour("order-close", begin), overdue.Hour{Begin: begin})
	c := overdue.Counts{Missed: 1, AfterPause: 20, AfterFailure: 300, NotClosed: 4000}
	for range 2 {
		s.must(s.AddSweep(t.Context(), "order-close", begin, c))
		s.must(s.AddSweep(t.Context(), "order-close", begin, overdue.Counts{}))
	}
	s.must(s.AddSweep(t.Context(), "Order-Close", begin, overdue.Counts{Missed: 7}))
	s.must(s.AddSweep(t.Context(), "order-close", begin.Add(-time.Hour), overdue.Counts{NotClosed: 9}))
	double := overdue.Hour{Begin: begin, Counts: overdue.Counts{Missed: 2, AfterPause: 40, AfterFailure: 600, NotClosed: 8000}}
	want(t, "the hour", s.hour("order-close", begin), double)
	want(t, "that of another pipeline", s.hour("Order-Close", begin).Counts, overdue.Counts{Missed: 7})
	hours := must.Get(s.SweepHours(t.Context(), "order-close", begin.Add(-time.Hour), 10))(t)
	want(t, "the hours", hours, []overdue.Hour{double, {Begin: begin.Add(-time.Hour), Counts: overdue.Counts{NotClosed: 9}}})
	hours = must.Get(s.SweepHours(t.Context(), "order-close", begin.Add(-time.Hour), 1))(t)
	want(t, "one hour", hours, []overdue.Hour{double})
	hours = must.Get(s.SweepHours(t.Context(), "order-close", begin, 10))(t)
	want(t, "the hours since", hours, []overdue.Hour{double})
	hours = must.Get(s.SweepHours(t.Context(), "booking-close", time.Unix(0, 0), 10))(t)
	want(t, "the hours of none", len(hours), 0)
}

func hourEnds(t *testing.T, s *shop) {
	s.migrated()
	first, second := s.now().UTC().Truncate(time.Hour), s.now().UTC().Truncate(time.Hour).Add(-time.Hour)
	began := s.now()
	s.must(s.AddSweep(t.Context(), "order-close", first, overdue.Counts{Missed: 1}))
	s.must(s.EndSweep(t.Context(), "order-close", first, overdue.Unfinished, 30*time.Minute))
	h := s.hour("order-close", first)
	s.within("the end", h.Ended, began)
	want(t, "unfinished", h, overdue.Hour{Begin: first, Counts: overdue.Counts{Missed: 1}, State: overdue.Unfinished, Ended: h.Ended, TookMillis: 1_800_000})
	s.exec("UPDATE sweeps SET ended_at = ?", s.time(began.Add(-time.Minute)))
	s.must(s.EndSweep(t.Context(), "order-close", first, overdue.Finished, 1500*time.Millisecond))
	h = s.hour("order-close", first)
	s.within("the end", h.Ended, began)
	want(t, "finished", h, overdue.Hour{Begin: first, Counts: overdue.Counts{Missed: 1}, State: overdue.Finished, Ended: h.Ended, TookMillis: 1500})
	s.must(s.EndSweep(t.Context(), "order-close", first, overdue.Unfinished, time.Hour))
	s.must(s.AddSweep(t.Context(), "order-close", first, overdue.Counts{Missed: 1}))
	h.Missed = 2
	want(t, "afterwards", s.hour("order-close", first), h)
	s.must(s.EndSweep(t.Context(), "order-close", second, overdue.Unfinished, 0))
	want(t, "an hour that ends without counts", s.hour("order-close", second).State, overdue.Unfinished)
}

func oldHours(t *testing.T, s *shop) {
	s.migrated()
	now := s.now().UTC().Truncate(time.Hour)
	old, kept := now.Add(-90*24*time.Hour-time.Hour), now.Add(-90*24*time.Hour)
	for _, hour := range []time.Time{old.Add(-time.Hour), old, kept} {
		s.must(s.AddSweep(t.Context(), "order-close", hour, overdue.Counts{Missed: 1}))
	}
	s.must(s.AddSweep(t.Context(), "booking-close", old, overdue.Counts{Missed: 1}))
	s.must(s.EndSweep(t.Context(), "order-close", now, overdue.Finished, 0))
	hours := must.Get(s.SweepHours(t.Context(), "order-close", time.Unix(0, 0), 10))(t)
	var begins []time.Time
	for _, h := range hours {
		begins = append(begins, h.Begin)
	}
	want(t, "hours", begins, []time.Time{now, kept})
	want(t, "that of another pipeline", s.hour("booking-close", old).Missed, 1)
}

func (s *shop) wantLease(holder string, expiry time.Duration, held bool) {
	s.Helper()
	want(s, "held by "+holder, must.Get(s.TakeLease(s.Context(), "order-close/a", holder, expiry))(s), held)
}

func leases(t *testing.T, s *shop) {
	s.migrated()
	s.wantLease("a", time.Hour, true)
	s.wantLease("b", time.Hour, false)
	s.wantLease("A", time.Hour, false)
	for range 20 { // also twice in a millisecond
		s.wantLease("a", time.Hour, true)
	}
	want(t, "another name", must.Get(s.TakeLease(t.Context(), "order-close/A", "b", time.Hour))(t), true)
	s.must(s.DropLease(t.Context(), "order-close/a", "b"))
	s.wantLease("b", time.Hour, false)
	s.must(s.DropLease(t.Context(), "order-close/a", "a"))
	s.wantLease("b", time.Hour, true)
	s.exec("UPDATE leases SET until_ms = ?", s.now().Add(3*time.Hour).UnixMilli())
	s.wantLease("c", time.Hour, true) // the clock was set back since b took it
	s.exec("UPDATE leases SET until_ms = ?", s.now().Add(-time.Millisecond).UnixMilli())
	s.wantLease("a", time.Hour, true)
	s.wantLease("b", time.Hour, false)
	holders := must.Get(s.LeaseHolders(t.Context()))(t)
	want(t, "holders", len(holders) == 1 && strings.HasPrefix(holders[0], "a until 2"), true)
	s.exec("UPDATE leases SET until_ms = ?", s.now().Add(-time.Millisecond).UnixMilli())
	s.wantLease("a", time.Hour, true) // nobody else has taken it
	until := int64(s.count("SELECT until_ms - ? FROM leases WHERE name = 'order-close/a'", s.now().UnixMilli()))
	expect.That(t, until <= 3600_000 && until >= 3000_000, "the lease ends in %d ms", until)
}

func leaseOfMany(t *testing.T, s *shop) {
	s.migrated()
	for round := range 3 {
		var all sync.WaitGroup
		var holders atomic.Int32
		for i := range 6 {
			all.Go(func() {
				held, err := s.TakeLease(t.Context(), "order-close", fmt.Sprint(i), time.Hour)
				expect.NoError(t, err)
				if held {
					holders.Add(1)
				}
			})
		}
		all.Wait()
		want(t, fmt.Sprintf("holders in round %d", round), holders.Load(), 1)
		s.exec("UPDATE leases SET until_ms = 0, holder = 'gone'")
	}
}

func closedBetween(t *testing.T, s *shop) {
	s.migrated("ink")
	var ids []string
	for i := range 5 {
		ids = append(ids, fmt.Sprint("o", i))
		s.order(ids[i], -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1})
	}
	s.order("open", time.Hour, shopdb.Item{SKU: "ink", Quantity: 1})
	at := s.close(ids...)[0].At
	s.exec("UPDATE receipts SET closed_at = ? WHERE order_id = 'o0'", s.time(at.Add(time.Second)))
	s.exec("UPDATE receipts SET closed_at = ? WHERE order_id = 'o4'", s.time(at.Add(-time.Second)))
	for what, c := range map[string]struct {
		from, to time.Time
		after    string
		limit    int
		want     []string
	}{
		"all":                      {at.Add(-time.Second), at.Add(time.Minute), "", 9, []string{"o4", "o1", "o2", "o3", "o0"}},
		"a page":                   {at.Add(-time.Second), at.Add(time.Minute), "", 3, []string{"o4", "o1", "o2"}},
		"the page after it":        {at, at.Add(time.Minute), "o2", 3, []string{"o3", "o0"}},
		"the end does not count":   {at, at.Add(time.Second), "", 9, []string{"o1", "o2", "o3"}},
		"the begin counts":         {at.Add(time.Second), at.Add(time.Minute), "", 9, []string{"o0"}},
		"nothing":                  {at.Add(2 * time.Second), at.Add(time.Minute), "", 9, nil},
		"the end before the begin": {at, at.Add(-time.Second), "", 9, nil},
	} {
		page := must.Get(s.ClosedBetween(t.Context(), c.from, c.to, c.after, c.limit))(t)
		var got []string
		for _, o := range page {
			got = append(got, o.OrderID)
		}
		expect.That(t, slices.Equal(got, c.want), "%s: %v, want %v", what, got, c.want)
		if what == "the begin counts" && !page[0].At.Equal(at.Add(time.Second)) {
			t.Errorf("closed at %v, want %v", page[0].At, at.Add(time.Second))
		}
	}
}

func keptRecheck(t *testing.T, s *shop) {
	s.migrated()
	begin := s.now()
	until, now, err := s.Rechecked(t.Context(), "order-close", 90*time.Minute)
	s.must(err)
	s.within("the present", now, begin)
	want(t, "position before the first recheck", until, time.Time{})
	for _, until := range []time.Time{s.now().Add(-time.Hour).UTC(), s.now().UTC()} {
		s.must(s.KeepRechecked(t.Context(), "order-close", 90*time.Minute, until))
		got, _, err := s.Rechecked(t.Context(), "order-close", 90*time.Minute)
		s.must(err)
		want(t, "position", got, until)
	}
	for name, step := range map[string]time.Duration{"order-close": time.Hour, "booking-close": 90 * time.Minute} {
		until, _, err := s.Rechecked(t.Context(), name, step)
		s.must(err)
		want(t, "position of "+name, until, time.Time{})
	}
}
