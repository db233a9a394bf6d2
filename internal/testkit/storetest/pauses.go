package storetest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// allPaths are the paths that obey a pause.
var allPaths = []orderclose.Path{orderclose.PathPipeline, orderclose.PathSweep, orderclose.PathTouch}

var pausePromises = []promise[shop]{
	{name: "APauseEndsNoOtherUnseen", test: unseenPause},
	{name: "APauseClosesNothing", test: pausedOrders},
	{name: "APausedCategoryDelaysItsOrdersOnly", test: pausedCategory},
	{name: "APauseEndsByItself", test: pauseEnds},
	{name: "APauseThatWasResumedIsRememberedForNinetyDays", test: resumedPause, tags: Dialect},
}

// wantPaused checks that no order is closed, by any path.
func (s *shop) wantPaused(id string) {
	s.Helper()
	for _, path := range allPaths {
		_, err := s.CloseOrders(s.Context(), path, requests(id))
		for _, want := range []error{orderclose.ErrPaused, orderclose.ErrNoOrderAtFault, orderclose.ErrUnavailable} {
			expect.That(s, errors.Is(err, want), "closing %s by %s: error %v; want %v", id, path, err, want)
		}
		if _, err := s.PreviewClose(s.Context(), path, requests(id)); !errors.Is(err, orderclose.ErrPaused) || !errors.Is(err, orderclose.ErrNoOrderAtFault) {
			s.Errorf("a preview of %s: %v", path, err)
		}
	}
}

// pause pauses, and returns the pauses that end earlier.
func (s *shop) pause(category string, lasting time.Duration, reason string, replace bool) []pausing.Pause {
	s.Helper()
	return must.Get(s.Pause(s.Context(), category, lasting, reason, replace))(s)
}

// resume resumes, and returns the pauses that end.
func (s *shop) resume(category string) []pausing.Pause {
	s.Helper()
	return must.Get(s.Resume(s.Context(), category))(s)
}

// pauses returns the pauses that are on.
func (s *shop) pauses() []pausing.Pause {
	s.Helper()
	return must.Get(s.Pauses(s.Context()))(s)
}

// unseenPause lets two operators act at once. The longer pause is on afterwards, unless a resume has returned it.
func unseenPause(t *testing.T, s *shop) {
	s.migrated()
	for round := range 10 {
		category := []string{"", "book"}[round%2]
		var calls, acting sync.WaitGroup
		var short, long, resume error
		var ended []pausing.Pause
		calls.Go(func() { _, short = s.Pause(t.Context(), category, time.Minute, "short", false) })
		calls.Go(func() { _, long = s.Pause(t.Context(), category, time.Hour, "long", false) })
		if round%4 > 1 {
			acting.Go(func() { ended, resume = s.Resume(t.Context(), category) })
		}
		calls.Wait()
		acting.Wait()
		must.That(t, (short == nil || errors.Is(short, pausing.ErrEndsLater)) && long == nil && resume == nil,
			"the pauses return %v and %v, the resume %v", short, long, resume)
		on := s.pauses()
		seen := slices.DeleteFunc(slices.Concat(on, ended), func(p pausing.Pause) bool { return p.Reason != "long" })
		expect.That(t, len(seen) == 1, "round %d: %+v are on, a resume has ended %+v; the shorter pause returned %v", round, on, ended, short)
		s.resume(category)
	}
}

func pausedOrders(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute)
	s.order("b", -time.Minute)
	s.pause("", time.Hour, "the reason", false)
	s.wantPaused("a")
	want(t, "preview without the pauses", must.Get(s.PreviewClose(t.Context(), "", requests("a")))(t)[0].Verdict, orderclose.Closed)
	_, err := s.Pause(t.Context(), "", time.Minute, "shorter", false)
	expect.Is(t, err, pausing.ErrEndsLater, "a shorter pause")
	expect.Says(t, err, "all orders until", "a shorter pause")
	expect.Says(t, err, `"the reason"`, "a shorter pause")
	s.pause("book", time.Minute, "shorter, of a category", false)
	on := s.pauses()
	expect.That(t, len(on) == 2 && on[0].Reason == "the reason" && on[1].Category == "book", "after a refusal: pauses %+v", on)
	ended := s.pause("", time.Minute, "replaced", true)
	expect.That(t, len(ended) == 1 && ended[0].Reason == "the reason", "replaced %+v", ended)
	on = s.pauses()
	expect.That(t, len(on) == 2 && on[0].Reason == "replaced" && on[0].Until.Sub(on[0].CreatedAt) == time.Minute, "pauses %+v", on)
	s.wantPaused("a")
	ended = s.resume("")
	expect.That(t, len(ended) == 1 && ended[0].Reason == "replaced" && len(s.resume("book")) == 1, "ended %+v", ended)
	want(t, "verdicts", verdicts(s.close("a", "b")), []string{"a closed", "b closed"})
	want(t, "ended pauses, again", len(s.resume("")), 0)
	s.exec("INSERT INTO pauses (path, category, until_at, reason, created_at) VALUES ('by hand', '', ?, 'SQL', ?)",
		s.time(s.now().Add(time.Hour)), s.time(s.now()))
	s.wantPaused("a")
	want(t, "ended pauses that a statement wrote", len(s.resume("")), 1)
	want(t, "pauses, at last", len(s.pauses()), 0)
}

func pausedCategory(t *testing.T, s *shop) {
	s.migrated()
	s.order("book", -time.Minute)
	s.order("later", time.Hour)
	s.order("paid", -time.Minute)
	s.answer(s.Pay(t.Context(), "paid", "p"))
	s.must(s.CreateOrder(t.Context(), orderclose.Order{ID: "film", Category: "film", CreatedAt: s.now(), Due: s.now()}, nil))
	s.pause("book", time.Hour, "the reason", false)
	for path, verdict := range map[orderclose.Path]string{orderclose.PathPipeline: "paused", orderclose.PathSweep: "paused", "": "closed"} {
		out := must.Get(s.PreviewClose(t.Context(), path, requests("book", "film", "later", "paid")))(t)
		want(t, "preview of the path "+string(path), verdicts(out), []string{"book " + verdict, "film closed", "later not_due", "paid already_paid"})
	}
	want(t, "verdicts", verdicts(s.close("book", "film", "later", "paid")), []string{"book paused", "film closed", "later not_due", "paid already_paid"})
	s.resume("film")
	want(t, "verdicts, after another category was resumed", verdicts(s.close("book")), []string{"book paused"})
	s.resume("book")
	want(t, "verdicts, resumed", verdicts(s.close("book")), []string{"book closed"})
}

func pauseEnds(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	s.pause("", time.Hour, "the reason", false)
	s.wantPaused("a")
	s.exec("UPDATE pauses SET until_at = ?", s.time(s.now().Add(-time.Millisecond)))
	want(t, "pauses", len(s.pauses()), 0)
	want(t, "verdicts", verdicts(s.close("a")), []string{"a closed"})
}

func resumedPause(t *testing.T, s *shop) {
	s.migrated()
	for _, category := range []string{"book", "film", "toy"} {
		s.pause(category, time.Hour, "the reason", false)
	}
	s.exec("UPDATE pauses SET until_at = ? WHERE category = 'toy'", s.time(s.now().Add(-91*24*time.Hour)))
	before := s.now()
	ended := s.resume("book")
	want(t, "ended pauses", len(ended), 1)
	b := must.Get(s.BeginTurn(t.Context(), s.now()))(t)
	slices.SortFunc(b.Pauses, func(x, y pausing.Pause) int { return strings.Compare(x.Category, y.Category) })
	must.That(t, len(b.Pauses) == 2 && b.Pauses[1].Category == "film" && b.Pauses[0].CreatedAt == ended[0].CreatedAt && b.Pauses[0].Reason == "the reason",
		"pauses %+v", b.Pauses)
	s.within("the end", b.Pauses[0].Until, before)
	expect.That(t, !b.Pauses[0].Until.After(b.Now), "the pause ends at %v, and now it is %v", b.Pauses[0].Until, b.Now)
	want(t, "pauses in the table", s.texts("SELECT category FROM pauses WHERE path <> '' ORDER BY category"), []string{"book", "film"})
	want(t, "pauses that are on", len(s.pauses()), 1)
	s.pause("book", time.Minute, "again", false)
	want(t, "pauses that are on", len(s.pauses()), 2)
}
