package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
)

// gathered returns the value of the only series of a counter.
func gathered(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

func TestFactory_PartsOfOneProcessShareAMetric(t *testing.T) {
	r := prometheus.NewRegistry()
	for range 2 { // such as a closer and a compensator
		f := With(r)
		closes := NewCloses(f)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		closes.Verdict(orderclose.PathSweep, orderclose.Closed)
		closes.Lateness(orderclose.PathSweep, -time.Millisecond)
		closes.Lateness(orderclose.PathSweep, time.Millisecond)
	}
	if n := gathered(t, r, "orderclose_close_total"); n != 2 {
		t.Errorf("%v closes are counted, want 2", n)
	}
	if n := gathered(t, r, "orderclose_close_early_total"); n != 2 {
		t.Errorf("%v early closes are counted, want 2", n)
	}
}

func TestFactory_AWrappedRegistererSharesToo(t *testing.T) {
	r := prometheus.NewRegistry()
	for range 2 {
		f := With(prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, r))
		f.Counter("c", "C.").Inc()
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n := gathered(t, r, "orderclose_c"); n != 2 {
		t.Errorf("counted %v, want 2", n)
	}
}

func TestFactory_AnotherMetricOfTheNameIsAnError(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "orderclose_c", Help: "Another one."}))
	f := With(r)
	f.Counter("c", "C.").Inc()
	if err := f.Err(); err == nil || !strings.Contains(err.Error(), "orderclose_c") {
		t.Errorf("%v, want an error that names the metric", err)
	}
}

func TestFactory_NeedsNoRegisterer(t *testing.T) {
	f := With(nil)
	f.Counter("c", "C.").Inc()
	if err := f.Err(); err != nil {
		t.Error(err)
	}
}
