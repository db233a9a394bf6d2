package obs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fetches collects for how long the fetches of each partition have failed. It computes the
// value when it is collected, so that the value grows while a loop hangs.
type fetches struct {
	desc *prometheus.Desc

	mu    sync.Mutex
	since map[fetch]time.Time // the zero time: they succeed
}

// fetch names the stage and partition of a fetch.
type fetch struct {
	stage, topic string
	partition    int
}

func newFetches() *fetches {
	return &fetches{since: map[fetch]time.Time{}, desc: prometheus.NewDesc(namespace+"_fetch_failing_seconds",
		"Time since the last successful fetch of a partition; 0 while fetches succeed.", []string{"stage", "topic", "partition"}, nil)}
}

// FetchFailing implements the Metrics of packages delayrelay, closer and release.
func (m *Metrics) FetchFailing(stage, topic string, partition int, since time.Time) {
	f := m.fetches
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since[fetch{stage, topic, partition}] = since
}

// FetchEnded implements the Metrics of packages delayrelay, closer and release.
func (m *Metrics) FetchEnded(stage, topic string, partition int) {
	f := m.fetches
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.since, fetch{stage, topic, partition})
}

// Describe implements prometheus.Collector.
func (f *fetches) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

// Collect implements prometheus.Collector.
func (f *fetches) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, since := range f.since {
		var failing time.Duration
		if !since.IsZero() {
			failing = max(time.Since(since), 0)
		}
		ch <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, failing.Seconds(), at.stage, at.topic, itoa(at.partition))
	}
}
