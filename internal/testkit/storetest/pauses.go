package storetest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

var pausePromises = []promise[shop]{
	{name: "APauseEndsNoOtherUnseen", test: unseenPause},
	{name: "APausedPathClosesNothing", test: pausedPath},
	{name: "APausedCategoryDelaysItsOrdersOnly", test: pausedCategory},
	{name: "APauseEndsByItself", test: pauseEnds},
}

var pipelineOnly = []orderclose.Path{orderclose.PathPipeline}

// wantPaused checks that no order is closed by the pipeline.
func (s *shop) wantPaused(id string) {
	s.Helper()
	_, err := s.CloseOrders(s.Context(), orderclose.PathPipeline, requests(id))
	for _, want := range []error{orderclose.ErrPaused, orderclose.ErrNoOrderAtFault, orderclose.ErrUnavailable} {
		if !errors.Is(err, want) {
			s.Errorf("closing %s: error %v; want %v", id, err, want)
		}
	}
	if _, err := s.PreviewClose(s.Context(), orderclose.PathPipeline, requests(id)); !errors.Is(err, orderclose.ErrPaused) ||
		!errors.Is(err, orderclose.ErrNoOrderAtFault) {
		s.Errorf("a preview: %v", err)
	}
}

// pause pauses, and returns the pauses that end earlier.
func (s *shop) pause(paths []orderclose.Path, category string, lasting time.Duration, reason string, replace bool) []wire.Pause {
	s.Helper()
	ended, err := s.Pause(s.Context(), paths, category, lasting, reason, replace)
	s.must(err)
	return ended
}

// unseenPause lets two operators act at once. The longer pause is on afterwards, unless a resume has returned it.
func unseenPause(t *testing.T, s *shop) {
	s.migrated()
	for round := range 10 {
		category := []string{"", "book"}[round%2]
		var pausing, acting sync.WaitGroup
		var short, long, resume error
		var ended []wire.Pause
		pausing.Go(func() { _, short = s.Pause(t.Context(), orderclose.Paths(), category, time.Minute, "short", false) })
		pausing.Go(func() { _, long = s.Pause(t.Context(), orderclose.Paths(), category, time.Hour, "long", false) })
		if round%4 > 1 {
			acting.Go(func() { ended, resume = s.Resume(t.Context(), orderclose.Paths(), category) })
		}
		pausing.Wait()
		acting.Wait()
		if short != nil && !errors.Is(short, wire.ErrEndsLater) || long != nil || resume != nil {
			t.Fatalf("the pauses return %v and %v, the resume %v", short, long, resume)
		}
		on, err := s.Pauses(t.Context())
		s.must(err)
		seen := slices.DeleteFunc(slices.Concat(on, ended), func(p wire.Pause) bool { return p.Reason != "long" })
		if len(seen) != 3 {
			t.Errorf("round %d: %+v are on, a resume has ended %+v; the shorter pause returned %v", round, on, ended, short)
		}
		_, err = s.Resume(t.Context(), orderclose.Paths(), "")
		s.must(err)
	}
}

func pausedPath(t *testing.T, s *shop) {
	s.migrated("ink")
	for _, id := range []string{"a", "b", "c"} {
		s.order(id, -time.Minute)
	}
	s.pause(pipelineOnly, "", time.Hour, "the reason", false)
	s.wantPaused("a")
	out, err := s.PreviewClose(t.Context(), orderclose.PathSweep, requests("b"))
	s.must(err)
	want(t, "preview of the sweep", out[0].Verdict, orderclose.Closed)
	out, err = s.CloseOrders(t.Context(), orderclose.PathSweep, requests("b"))
	s.must(err)
	want(t, "verdict of the sweep", out[0].Verdict, orderclose.Closed)

	for _, paths := range [][]orderclose.Path{pipelineOnly, orderclose.Paths()} {
		_, err := s.Pause(t.Context(), paths, "", time.Minute, "shorter", false)
		want(t, "error of a shorter pause", errors.Is(err, wire.ErrEndsLater) && strings.Contains(err.Error(), "closes by pipeline of all orders until") &&
			strings.Contains(err.Error(), `"the reason"`), true)
	}
	on, err := s.Pauses(t.Context())
	s.must(err)
	if len(on) != 1 || on[0].Reason != "the reason" {
		t.Errorf("after a refusal: pauses %+v", on)
	}
	ended := s.pause(orderclose.Paths(), "", time.Minute, "longer", true)
	if len(ended) != 1 || ended[0].Reason != "the reason" {
		t.Errorf("replaced %+v", ended)
	}
	on, err = s.Pauses(t.Context())
	s.must(err)
	if len(on) != 3 || on[0].Reason != "longer" || on[0].Until.Sub(on[0].CreatedAt) != time.Minute {
		t.Errorf("pauses %+v", on)
	}
	ended, err = s.Resume(t.Context(), pipelineOnly, "")
	s.must(err)
	if len(ended) != 1 || ended[0].Path != orderclose.PathPipeline || ended[0].Reason != "longer" {
		t.Errorf("ended %+v", ended)
	}
	want(t, "verdicts", verdicts(s.close("a", "b", "c")), []string{"a closed", "b already_closed", "c closed"})
	ended, err = s.Resume(t.Context(), pipelineOnly, "")
	s.must(err)
	want(t, "ended pauses, again", len(ended), 0)
}

func pausedCategory(t *testing.T, s *shop) {
	s.migrated()
	s.order("book", -time.Minute)
	s.order("later", time.Hour)
	s.order("paid", -time.Minute)
	s.answer(s.Pay(t.Context(), "paid", "p"))
	s.must(s.CreateOrder(t.Context(), orderclose.Order{ID: "film", Category: "film", CreatedAt: s.now(), Due: s.now()}, nil))
	s.pause(pipelineOnly, "book", time.Hour, "the reason", false)
	for path, verdict := range map[orderclose.Path]string{orderclose.PathPipeline: "paused", orderclose.PathSweep: "closed", "": "closed"} {
		out, err := s.PreviewClose(t.Context(), path, requests("book", "film", "later", "paid"))
		s.must(err)
		want(t, "preview of the path "+string(path), verdicts(out), []string{"book " + verdict, "film closed", "later not_due", "paid already_paid"})
	}
	want(t, "verdicts", verdicts(s.close("book", "film", "later", "paid")), []string{"book paused", "film closed", "later not_due", "paid already_paid"})
	_, err := s.Resume(t.Context(), orderclose.Paths(), "film")
	s.must(err)
	want(t, "verdicts, after another category was resumed", verdicts(s.close("book")), []string{"book paused"})
	_, err = s.Resume(t.Context(), orderclose.Paths(), "book")
	s.must(err)
	want(t, "verdicts, resumed", verdicts(s.close("book")), []string{"book closed"})
}

func pauseEnds(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	s.pause(pipelineOnly, "", time.Hour, "the reason", false)
	s.wantPaused("a")
	s.exec("UPDATE pauses SET until_at = ?", s.time(s.now().Add(-time.Millisecond)))
	on, err := s.Pauses(t.Context())
	s.must(err)
	want(t, "pauses", len(on), 0)
	want(t, "verdicts", verdicts(s.close("a")), []string{"a closed"})
}
