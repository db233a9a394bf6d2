package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Elapsed is a gauge with labels. Its value is the time since a moment, in seconds. Before that
// moment the value is 0, and it is 0 for the zero time. The value is computed when Prometheus
// collects it, so it also grows while the code that sets the moment hangs. An Elapsed is safe for
// concurrent use.
type Elapsed struct {
	now    func() time.Time
	desc   *prometheus.Desc
	labels int

	mu    sync.Mutex
	since map[labels]time.Time
}

// labels are the values of up to three labels. The others are empty.
type labels [3]string

func labelsOf(values []string) (l labels) {
	copy(l[:], values)
	return l
}

// Elapsed creates an Elapsed with up to three labels. now is the clock that moments are compared
// with.
func (f *Factory) Elapsed(name, help string, now func() time.Time, names ...string) *Elapsed {
	return Register(f, &Elapsed{now: now, desc: Desc(name, help, names...), labels: len(names), since: map[labels]time.Time{}})
}

// Set sets the moment for the values of the labels.
func (e *Elapsed) Set(since time.Time, values ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since[labelsOf(values)] = since
}

// Delete removes the values of the labels from the metric.
func (e *Elapsed) Delete(values ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.since, labelsOf(values))
}

// Describe implements prometheus.Collector.
func (e *Elapsed) Describe(ch chan<- *prometheus.Desc) { ch <- e.desc }

// Collect implements prometheus.Collector.
func (e *Elapsed) Collect(ch chan<- prometheus.Metric) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for values, since := range e.since {
		var elapsed time.Duration
		if !since.IsZero() {
			elapsed = max(now.Sub(since), 0)
		}
		ch <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, elapsed.Seconds(), values[:e.labels]...)
	}
}
