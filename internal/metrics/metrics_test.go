package metrics

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// gathered returns the sum of the series of a counter.
func gathered(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families := must.Get(g.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestFactory_PartsOfOneProcessShareAMetric(t *testing.T) {
	r, at := prometheus.NewRegistry(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for range 2 { // such as a closer and a compensator
		f := With(r)
		closes := NewCloses(f, orderclose.PathSweep, nil)
		must.Do(t, f.Err())
		closes.Verdict(orderclose.Closed)
		closes.Lateness(logger, "virtual", "", orderclose.Outcome{OrderID: "early", Due: at.Add(time.Millisecond), At: at})
		closes.Lateness(logger, "virtual", "", orderclose.Outcome{OrderID: "late", Due: at, At: at.Add(time.Millisecond)})
		closes.Lateness(logger, "virtual", "", orderclose.Outcome{OrderID: "of a Store that does not know when", Due: at})
	}
	expect.Equal(t, gathered(t, r, "orderclose_close_total"), 2, "closes are counted")
	expect.Equal(t, gathered(t, r, "orderclose_close_early_total"), 2, "early closes are counted")
	expect.That(t, strings.Count(log.String(), "level=ERROR") == 2 && strings.Count(log.String(),
		"order=early due=2026-11-20T12:00:00.001Z closed=2026-11-20T12:00:00.000Z") == 2,
		"the log of two early closes:\n%s", log.String())
}

// A histogram of lateness has some twenty series. Records name any category they like.
func TestCloses_OnlyListedCategoriesHaveAHistogram(t *testing.T) {
	r := prometheus.NewRegistry()
	listed := func(category string) string {
		if category == "virtual" {
			return category
		}
		return OtherCategories
	}
	closes, late := NewCloses(With(r), orderclose.PathPipeline, listed), orderclose.Outcome{Due: time.Unix(0, 0), At: time.Unix(1, 0)}
	for _, category := range []string{"virtual", "", "unheard-of", "default", "virtual"} {
		closes.Lateness(slog.Default(), category, "", late)
	}
	families := must.Get(r.Gather())(t)
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "orderclose_close_end_to_end_lateness_seconds" {
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	expect.Same(t, got, map[string]uint64{"virtual pipeline": 2, "default pipeline": 3}, "by category and path")
	n := testing.AllocsPerRun(100, func() { closes.Lateness(slog.Default(), "virtual", "", late) })
	expect.That(t, n <= 0, "%v allocations for each order", n)
}

// Otherwise increase() does not see the first order that could not be closed.
func TestCloses_EachVerdictHasASeriesAtZero(t *testing.T) {
	r := prometheus.NewRegistry()
	NewCloses(With(r), orderclose.PathPipeline, nil)
	families := must.Get(r.Gather())(t)
	for _, f := range families {
		if f.GetName() == "orderclose_close_total" && len(f.GetMetric()) == len(orderclose.Verdicts()) {
			return
		}
	}
	t.Errorf("not each verdict has a series: %v", families)
}

func TestFactory_AWrappedRegistererSharesToo(t *testing.T) {
	r := prometheus.NewRegistry()
	for range 2 {
		f := With(prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, r))
		f.Counter("c", "C.").Inc()
		must.Do(t, f.Err())
	}
	expect.Equal(t, gathered(t, r, "orderclose_c"), 2, "counted")
}

func TestFactory_AnotherMetricOfTheNameIsAnError(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "orderclose_c", Help: "Another one."}))
	f := With(r)
	f.Counter("c", "C.").Inc()
	err := f.Err()
	expect.That(t, err != nil && strings.Contains(err.Error(), "orderclose_c"), "%v, want an error that names the metric", err)
}

func TestFactory_NeedsNoRegisterer(t *testing.T) {
	f := With(nil)
	f.Counter("c", "C.").Inc()
	expect.NoError(t, f.Err())
}
