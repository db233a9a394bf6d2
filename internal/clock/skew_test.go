package clock

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var skewDelays = orderclose.Delays{Default: 30 * time.Minute, ByCategory: map[string]time.Duration{"virtual": 5 * time.Minute}}

// play compares one order each second, created by a clock that is ahead by what ahead returns for the second, and returns in which second the
// first skew was found. Every third order is by a right clock.
func play(t *testing.T, seconds int, ahead func(second int) time.Duration) (s *Skews, found int) {
	t.Helper()
	s, found = NewSkews(skewDelays), -1
	begin := time.Now()
	for i := range seconds {
		now := begin.Add(time.Duration(i) * time.Second)
		by := ahead(i)
		if i%3 == 0 {
			by = 0
		}
		o := orderclose.Order{ID: fmt.Sprint("o", i), CreatedAt: now.Add(by - 20*time.Millisecond)}
		o.Due = o.CreatedAt.Add(5 * time.Minute)
		s.Compare(AtOutbox, o, now)
		if found < 0 && len(s.Found()) > 0 {
			found = i
		}
	}
	return s, found
}

func TestSkews_FindsEachWrongClockBesideRightOnes(t *testing.T) {
	for name, c := range map[string]struct {
		ahead  func(second int) time.Duration
		within int // seconds
		by     time.Duration
	}{
		"an hour behind":    {func(int) time.Duration { return -time.Hour }, 60, -time.Hour},
		"an hour ahead":     {func(int) time.Duration { return time.Hour }, 2, time.Hour},
		"20 s behind":       {func(int) time.Duration { return -20 * time.Second }, 360, -20 * time.Second},
		"6 s behind":        {func(int) time.Duration { return -6 * time.Second }, 360, -6 * time.Second},
		"30 s ahead":        {func(int) time.Duration { return 30 * time.Second }, 2, 30 * time.Second},
		"steps back by 1 h": {func(s int) time.Duration { return map[bool]time.Duration{true: -time.Hour}[s >= 60] }, 120, -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s, found := play(t, 400, c.ahead)
			must.That(t, found >= 0 && found <= c.within, "found in second %d, want %d at most", found, c.within)
			all := s.Found()
			must.That(t, len(all) == 1 && all[0].Place == AtOutbox, "%v", all)
			expect.That(t, (all[0].Ahead-c.by).Abs() < time.Second, "%v, want %v", all[0].Ahead, c.by)
			expect.That(t, all[0].Orders > 200 && all[0].Order != "", "%v", all[0])
		})
	}
}

// What is no clock: each order waits for another time.
func TestSkews_ABacklogIsNoClock(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for name, ahead := range map[string]func(second int) time.Duration{
		"right clocks":                 func(int) time.Duration { return 0 },
		"an hour that drains in 200 s": func(s int) time.Duration { return min(0, time.Duration(s)*18*time.Second-time.Hour) },
		"a backlog that grows":         func(s int) time.Duration { return -time.Duration(s) * time.Second },
		"a checkout that waits for locks for up to 50 s": func(int) time.Duration {
			return -time.Duration(random.Int64N(int64(50 * time.Second)))
		},
		"old orders are imported": func(int) time.Duration { return -time.Duration(random.Int64N(int64(24 * time.Hour))) },
		"one order that is late":  func(s int) time.Duration { return map[bool]time.Duration{true: -time.Hour}[s == 7] },
	} {
		t.Run(name, func(t *testing.T) {
			s, found := play(t, 1000, ahead)
			expect.That(t, found < 0, "found in second %d: %v", found, s.Found())
		})
	}
}

// An order whose due time was moved earlier is scheduled again long after its creation.
func TestSkews_AMovedDueTimeIsNoClock(t *testing.T) {
	s, now := NewSkews(skewDelays), time.Now()
	for i := range 600 {
		at := now.Add(time.Duration(i) * time.Second)
		s.Compare(AtOutbox, orderclose.Order{ID: "o", CreatedAt: at.Add(-10 * time.Minute), Due: at.Add(time.Minute)}, at)
	}
	expect.Same(t, s.Found(), nil, "what was found")
}

func TestSkews_ForgetsAClockThatIsRightAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := play(t, 100, func(int) time.Duration { return -time.Hour })
		expect.Equal(t, len(s.Found()), 1, "skews")
		time.Sleep(keepSkew + time.Second)
		expect.Same(t, s.Found(), nil, "what is left")
	})
}

// Orders that were due when they were created are all closed late by the same time; those of an outage are not.
func TestSkews_ClosesLateByTheSameTimeShowAClock(t *testing.T) {
	begin := time.Now()
	clockBehind, outage := NewSkews(skewDelays), NewSkews(skewDelays)
	for i := range 60 {
		at := begin.Add(time.Duration(i) * time.Second)
		clockBehind.CompareClose("behind", at.Add(-30*time.Minute), at)
		clockBehind.CompareClose("right", at.Add(-5*time.Millisecond), at)
		outage.CompareClose("o", at.Add(-30*time.Minute+time.Duration(i)*20*time.Second), at)
	}
	found := clockBehind.Found()
	expect.That(t, len(found) == 1 && found[0].Ahead == -30*time.Minute && found[0].Orders == 60 && found[0].Order == "behind", "%v", found)
	expect.Same(t, outage.Found(), nil, "what an outage looks like")
}

func TestSkews_NilComparesNothing(t *testing.T) {
	var s *Skews
	s.Compare(AtLoop, orderclose.Order{CreatedAt: time.Now().Add(time.Hour)}, time.Now())
}
