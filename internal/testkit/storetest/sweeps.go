package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

var sweepPromises = []promise[shop]{
	{name: "LastSweepIsZeroUntilASweepFinished", test: noSweepYet},
	{name: "LastSweepIsWhenTheSweepFinished", test: lastSweep},
	{name: "SweepFinishedTwiceIsOneRow", test: sweepFinishedAgain, tags: Dialect},
	{name: "SweepsOfEachNameAreSeparate", test: sweepsOfEachName},
	{name: "TheKeptPauseIsNoSweep", test: keptPause},
	{name: "ClosedOrdersArePagedByTheTimeOfTheirClose", test: closedBetween},
	{name: "ThePositionOfEachRecheckIsKept", test: keptRecheck},
}

// swept returns when the sweep of a name last finished. It checks that the returned current time
// is the database's.
func (s *shop) swept(name string) time.Time {
	s.Helper()
	begin := s.now()
	finished, now, err := s.LastSweep(s.Context(), name)
	s.must(err)
	s.within("the present", now, begin)
	return finished
}

// within checks that at is between begin and now, by the database's clock.
func (s *shop) within(what string, at, begin time.Time) {
	s.Helper()
	if end := s.now(); at.Before(begin) || at.After(end) {
		s.Errorf("%s is %v, want it between %v and %v", what, at, begin, end)
	}
}

func (s *shop) sweep(name string) {
	s.Helper()
	s.must(s.SweepFinished(s.Context(), name))
}

func noSweepYet(t *testing.T, s *shop) {
	s.migrated()
	want(t, "last sweep of none", s.swept("order-close"), time.Time{})
}

func lastSweep(t *testing.T, s *shop) {
	s.migrated()
	begin := s.now()
	s.sweep("order-close")
	finished := s.swept("order-close")
	s.within("the last sweep", finished, begin)
	want(t, "last sweep, read again", s.swept("order-close"), finished)
}

func sweepFinishedAgain(t *testing.T, s *shop) {
	s.migrated()
	s.sweep("order-close")
	before := s.now().Add(-time.Hour)
	s.exec("UPDATE sweeps SET finished_at = ?", s.time(before))
	want(t, "last sweep", s.swept("order-close"), before)
	begin := s.now()
	s.sweep("order-close")
	s.within("the last sweep", s.swept("order-close"), begin)
	want(t, "sweeps in the table", s.count("SELECT COUNT(*) FROM sweeps"), 1)
}

// Two pipelines share a database. Their sweeps have the names of their close topics. Names
// compare exactly.
func sweepsOfEachName(t *testing.T, s *shop) {
	s.migrated()
	s.sweep("order-close")
	before := s.now().Add(-time.Hour)
	s.exec("UPDATE sweeps SET finished_at = ?", s.time(before))
	for _, name := range []string{"booking-close", "Order-Close", "order-close-2", ""} {
		want(t, "last sweep of "+name, s.swept(name), time.Time{})
	}
	begin := s.now()
	s.sweep("booking-close")
	s.sweep("Order-Close")
	s.within("the last sweep of the second", s.swept("booking-close"), begin)
	want(t, "last sweep of the first", s.swept("order-close"), before)
	want(t, "sweeps in the table", s.count("SELECT COUNT(*) FROM sweeps"), 3)
}

func keptPause(t *testing.T, s *shop) {
	s.migrated()
	if _, known, err := s.KeptPause(s.Context(), "order-close"); known || err != nil {
		t.Errorf("before a pause was kept: known %v, %v", known, err)
	}
	for _, until := range []time.Time{s.now().Add(time.Hour).UTC(), s.now().UTC()} {
		s.must(s.KeepPause(s.Context(), "order-close", until))
		got, known, err := s.KeptPause(s.Context(), "order-close")
		if !got.Equal(until) || !known || err != nil {
			t.Errorf("kept %v (%v), %v; want %v", got, known, err, until)
		}
	}
	want(t, "last sweep", s.swept("order-close"), time.Time{})
	if _, known, _ := s.KeptPause(s.Context(), "booking-close"); known {
		t.Error("another pipeline has the pause")
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
		page, err := s.ClosedBetween(t.Context(), c.from, c.to, c.after, c.limit)
		s.must(err)
		var got []string
		for _, o := range page {
			got = append(got, o.OrderID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
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
	want(t, "last sweep", s.swept("order-close"), time.Time{})
}
