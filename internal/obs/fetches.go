package obs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fetches tells for how long fetches of a partition have failed. It is worked out when
// it is asked for, so that it grows while nothing moves.
type fetches struct {
	desc *prometheus.Desc

	mu    sync.Mutex
	since map[fetch]time.Time // the zero time: they succeed
}

// fetch is who fetches what.
type fetch struct {
	stage, topic string
	partition    int
}

func newFetches() *fetches {
	return &fetches{since: map[fetch]time.Time{}, desc: prometheus.NewDesc(namespace+"_fetch_failing_seconds",
		"For how long no fetch of a partition has succeeded; 0 while they do.", []string{"stage", "topic", "partition"}, nil)}
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
