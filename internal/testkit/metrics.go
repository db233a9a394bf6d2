package testkit

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metrics are the metrics of one part, to be passed as its Registerer.
type Metrics struct{ *prometheus.Registry }

// NewMetrics returns Metrics.
func NewMetrics() Metrics { return Metrics{prometheus.NewRegistry()} }

// Value returns the sum of the series that have the label values, given as name, value, name, value. Of a histogram it is the number of observations.
// The name has no "orderclose_". Without series it is 0.
func (m Metrics) Value(name string, labels ...string) (sum float64) {
	for _, series := range m.series(name) {
		if has(series, labels) {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// Series returns the number of series of a metric.
func (m Metrics) Series(name string) int { return len(m.series(name)) }

func (m Metrics) series(name string) []*dto.Metric {
	families, err := m.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == "orderclose_"+name {
			return f.GetMetric()
		}
	}
	return nil
}

func has(series *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range series.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
