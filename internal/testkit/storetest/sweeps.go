package storetest

import (
	"testing"
	"time"
)

var sweepPromises = []promise{
	{"LastSweepIsZeroUntilASweepFinished", noSweepYet},
	{"LastSweepIsWhenTheSweepFinished", lastSweep},
	{"SweepFinishedTwiceIsOneRow", sweepFinishedAgain},
	{"SweepsOfEachNameAreSeparate", sweepsOfEachName},
	{"TheKeptPauseIsNoSweep", keptPause},
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
