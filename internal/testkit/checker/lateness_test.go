package checker_test

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// samples returns ten orders a second, whose lateness is that of their second.
func samples(end time.Time, late ...time.Duration) (all []checker.Sample) {
	for second, d := range late {
		for i := range 10 {
			all = append(all, checker.Sample{Due: end.Add(time.Duration(second)*time.Second + time.Duration(i)*100*time.Millisecond), Late: d})
		}
	}
	return all
}

func TestRecovery_EndsWhenLatenessIsNormalForThreeSeconds(t *testing.T) {
	end := time.UnixMilli(1_700_000_000_000)
	const ok, bad = 10 * time.Millisecond, 3 * time.Second
	for name, c := range map[string]struct {
		late []time.Duration
		want time.Duration
		ok   bool
	}{
		"at once":                      {[]time.Duration{ok, ok, ok}, 0, true},
		"after a backlog":              {[]time.Duration{bad, bad, ok, ok, ok}, 2 * time.Second, true},
		"a relapse counts":             {[]time.Duration{bad, ok, ok, bad, ok, ok, ok}, 4 * time.Second, true},
		"a later fault does not count": {[]time.Duration{ok, ok, ok, bad, bad}, 0, true},
		"never":                        {[]time.Duration{bad, bad}, 0, false},
		"normal until the end":         {[]time.Duration{bad, ok}, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, ok := checker.Recovery(samples(end, c.late...), end, checker.NormalLateness)
			expect.That(t, d == c.want && ok == c.ok, "%v, %v; want %v, %v", d, ok, c.want, c.ok)
		})
	}
	t.Run("one late order in ten is too many, one in twenty is not", func(t *testing.T) {
		few := append(samples(end, ok, ok, ok), samples(end, ok, ok, ok)...) // twenty a second
		few = sorted(few)
		few[3].Late = bad
		if d, _ := checker.Recovery(few, end, checker.NormalLateness); d != 0 {
			t.Errorf("one in twenty: %v", d)
		}
		few[4].Late = bad
		if d, _ := checker.Recovery(few, end, checker.NormalLateness); d != time.Second {
			t.Errorf("two in twenty: %v", d)
		}
	})
	t.Run("seconds without orders neither count nor interrupt", func(t *testing.T) {
		all := append(samples(end, bad, ok), samples(end.Add(10*time.Second), ok, ok)...)
		if d, ok := checker.Recovery(all, end, checker.NormalLateness); d != time.Second || !ok {
			t.Errorf("%v, %v", d, ok)
		}
	})
	t.Run("orders that were due before the end do not count", func(t *testing.T) {
		all := append(samples(end.Add(-5*time.Second), bad, bad, bad, bad, bad), samples(end, ok, ok, ok)...)
		if d, ok := checker.Recovery(all, end, checker.NormalLateness); d != 0 || !ok {
			t.Errorf("%v, %v", d, ok)
		}
	})
}

func TestNormal_IsASecondOrTwiceTheCalmLateness(t *testing.T) {
	from := time.UnixMilli(1_700_000_000_000)
	calm := samples(from, 100*time.Millisecond, 100*time.Millisecond, 9*time.Second)
	expect.Equal(t, checker.Normal(calm, from, from.Add(2*time.Second)), time.Second, "on an idle machine")
	expect.Equal(t, checker.Normal(samples(from, 2*time.Second), from, from.Add(time.Second)), 4*time.Second, "on a busy machine")
	expect.Equal(t, checker.Normal(nil, from, from), time.Second, "of nothing")
}

func sorted(all []checker.Sample) []checker.Sample {
	for i := range all {
		for j := i; j > 0 && all[j].Due.Before(all[j-1].Due); j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	return all
}

func TestQuantile(t *testing.T) {
	expect.Equal(t, checker.Quantile(nil, 0.5), 0, "of nothing")
	all := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		expect.Equal(t, checker.Quantile(all, q), want, "quantile %v", q)
	}
}
