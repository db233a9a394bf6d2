// Package metrics creates and registers Prometheus metrics. Each part registers its own.
//
//	m := metrics.With(registerer)
//	forwarded := m.CounterVec("relay_forwarded_total", "Records appended to the close topic.", "topic")
//	…
//	return m.Err()
//
// Parts of one process may register the same metric. They all share the metric that was
// registered first. close.go has the metrics of the parts that close orders.
package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/tracing"
)

// Namespace begins the name of each metric.
const Namespace = "orderclose"

// Factory creates metrics and registers them. It is used by one goroutine.
type Factory struct {
	r   prometheus.Registerer
	err error
}

// With returns a Factory that registers with r. If r is nil, the metrics work but are not
// registered.
func With(r prometheus.Registerer) *Factory { return &Factory{r: r} }

// Err returns why metrics could not be registered: another metric has the same name. Call it
// after the last metric.
func (f *Factory) Err() error {
	if f.err != nil {
		return fmt.Errorf("register the metrics: %w", f.err)
	}
	return nil
}

// Register registers a collector and returns it. If a collector with the same metrics was
// registered before, Register returns that collector instead. Check f.Err afterwards.
func Register[C prometheus.Collector](f *Factory, c C) C {
	if f.r == nil {
		return c
	}
	err := f.r.Register(c)
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if first, ok := known.ExistingCollector.(C); ok {
			return first
		}
	}
	f.err = errors.Join(f.err, err)
	return c
}

// Counter creates a counter.
func (f *Factory) Counter(name, help string) prometheus.Counter {
	return Register(f, prometheus.NewCounter(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}))
}

// CounterVec creates counters with labels.
func (f *Factory) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return Register(f, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels))
}

// Gauge creates a gauge.
func (f *Factory) Gauge(name, help string) prometheus.Gauge {
	return Register(f, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: Namespace, Name: name, Help: help}))
}

// GaugeVec creates gauges with labels.
func (f *Factory) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return Register(f, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: Namespace, Name: name, Help: help}, labels))
}

// Histogram creates a histogram. buckets are the upper bounds, in the unit of the metric.
func (f *Factory) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return Register(f, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: buckets}))
}

// HistogramVec creates histograms with labels. buckets are the upper bounds, in the unit of the
// metric.
func (f *Factory) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return Register(f, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: buckets}, labels))
}

// Observe observes a duration. If traceparent is not "", it is that of a sampled trace, whose id becomes the
// exemplar of the observation.
func Observe(o prometheus.Observer, d time.Duration, traceparent string) {
	if traceparent == "" {
		o.Observe(d.Seconds())
		return
	}
	o.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": tracing.TraceID(traceparent)})
}

// Timestamp returns t in unix seconds, or 0 for the zero time.
func Timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// CallsFailing creates the gauge that shows since when all calls of a service have failed. The
// value is a Timestamp.
func CallsFailing(f *Factory) *prometheus.GaugeVec {
	return f.GaugeVec("calls_failing_since_timestamp_seconds",
		"Time since which every call of a service has failed, for any reason; 0 if the last call succeeded, or was 20 minutes ago.", "endpoint")
}
