package partition

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
)

// Metrics are what every stage measures. The methods are safe for concurrent use.
type Metrics struct {
	deadLetters *prometheus.CounterVec
	stuck       *prometheus.CounterVec
	repeated    prometheus.Counter
	lost        *prometheus.CounterVec
	fetches     *fetches
}

// NewMetrics returns Metrics and registers them with f. Check f.Err afterwards.
func NewMetrics(f *metrics.Factory) *Metrics {
	return &Metrics{
		deadLetters: f.CounterVec("dead_letters_total", "Records given up as dead letters. A record that is read again counts again.", "stage", "cause"),
		stuck:       f.CounterVec("partition_stuck_total", "Restarts of a partition's loop because it hung.", "stage", "topic", "partition"),
		repeated:    f.Counter("possible_duplicates_total", "Records that may have been appended twice, because an answer was missing or the broker forgot the producer id. Duplicates are harmless."),
		lost:        f.CounterVec("retention_lost_records_total", "Offsets that were lost before they were read, by retention, truncation, or a recreation of the topic. An unknown number counts as 1.", "topic", "partition"),
		fetches:     metrics.Register(f, newFetches()),
	}
}

// DeadLettered counts one dead letter.
func (m *Metrics) DeadLettered(stage, cause string) {
	m.deadLetters.WithLabelValues(stage, cause).Inc()
}

// Stuck counts the loops of a partition that hung and were restarted.
func (m *Metrics) Stuck(stage, topic string, partition int) {
	m.stuck.WithLabelValues(stage, topic, strconv.Itoa(partition)).Inc()
}

// Repeated counts records that may have been written twice.
func (m *Metrics) Repeated(records int) { m.repeated.Add(float64(records)) }

// Lost counts offsets that the log no longer had when the loop fetched them. A number below 1
// means that the number is unknown, and counts as 1.
func (m *Metrics) Lost(topic string, partition int, records int64) {
	m.lost.WithLabelValues(topic, strconv.Itoa(partition)).Add(float64(max(records, 1)))
}

// FetchFailing sets since when the fetches of a partition have failed. The zero time means that
// fetches succeed.
func (m *Metrics) FetchFailing(stage, topic string, partition int, since time.Time) {
	m.fetches.mu.Lock()
	defer m.fetches.mu.Unlock()
	m.fetches.since[fetchedPartition{stage, topic, partition}] = since
}

// FetchEnded means that the partition is no longer fetched.
func (m *Metrics) FetchEnded(stage, topic string, partition int) {
	m.fetches.mu.Lock()
	defer m.fetches.mu.Unlock()
	delete(m.fetches.since, fetchedPartition{stage, topic, partition})
}

// fetches collects for how long the fetches of each partition have failed. It computes the
// value when it is collected, so that the value grows while a loop hangs.
type fetches struct {
	desc *prometheus.Desc

	mu    sync.Mutex
	since map[fetchedPartition]time.Time // the zero time: they succeed
}

type fetchedPartition struct {
	stage, topic string
	partition    int
}

func newFetches() *fetches {
	return &fetches{since: map[fetchedPartition]time.Time{}, desc: metrics.Desc("fetch_failing_seconds",
		"Time since fetches of a partition began to fail; 0 while fetches succeed.", "stage", "topic", "partition")}
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
		ch <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, failing.Seconds(), at.stage, at.topic, strconv.Itoa(at.partition))
	}
}
