package compensator

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func at(clock string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2026-11-20 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

func TestSchedule_ASweepIsDueOncePerPeriod(t *testing.T) {
	s := schedule{time.Hour, 17 * time.Second}
	for _, c := range []struct {
		finished, now string
		due           bool
	}{
		{"09:00:18", "09:59:59", false},
		{"09:00:18", "10:00:16", false}, // not before the jitter
		{"09:00:18", "10:00:17", true},
		{"10:00:17", "10:00:17", false}, // the sweep took no time
		{"10:00:17", "11:00:16", false},
		{"10:59:59", "11:00:17", true},  // on demand, just before
		{"11:30:00", "11:31:00", false}, // the sweep took longer than a period: that slot is skipped
		{"09:00:18", "23:00:00", true},  // after an outage
		{"12:30:00", "12:29:30", false}, // a clock that was set back a little
		{"14:00:00", "12:29:00", true},  // stored by a clock that was hours ahead
	} {
		expect.Equal(t, s.due(at(c.finished), at(c.now)), c.due, "finished at %s, now %s: due", c.finished, c.now)
	}
	expect.That(t, s.due(time.Time{}, at("12:00:00")), "the first sweep is not due")
}

func TestSchedule_PollsEachMinuteAndWhenASweepIsDue(t *testing.T) {
	s := schedule{time.Hour, 17 * time.Second}
	for now, want := range map[string]time.Duration{
		"09:30:00": time.Minute, "09:59:57": 20 * time.Second, "10:00:16": time.Second, "10:00:17": time.Minute,
	} {
		expect.Equal(t, s.wait(at(now)), want, "at %s: the time until it asks", now)
	}
	expect.Equal(t, (schedule{period: 5 * time.Second}).pollInterval(), time.Second, "the poll interval with a period of 5 s")
}

func TestSchedule_CountsTheSlotsDuringALongSweep(t *testing.T) {
	s := schedule{time.Hour, 17 * time.Second}
	for _, c := range []struct {
		began, ended string
		want         int
	}{
		{"10:00:17", "10:10:00", 0}, {"10:00:17", "11:00:17", 1}, {"10:30:00", "11:00:16", 0}, {"10:30:00", "13:01:00", 3},
	} {
		expect.Equal(t, s.passed(at(c.began), at(c.ended)), c.want, "from %s to %s", c.began, c.ended)
	}
}

func TestSchedule_TheJitterIsSmallAndDependsOnTheName(t *testing.T) {
	a, b := newSchedule(time.Hour, "order-close"), newSchedule(time.Hour, "staging-order-close")
	expect.That(t, a.jitter != b.jitter && a.jitter <= time.Minute && b.jitter <= time.Minute, "%v and %v", a.jitter, b.jitter)
	expect.Equal(t, newSchedule(time.Hour, "order-close"), a, "the schedule of another process")
	short := newSchedule(5*time.Second, "order-close")
	expect.That(t, short.jitter <= 500*time.Millisecond, "%v of jitter in a period of 5 s", short.jitter)
}
