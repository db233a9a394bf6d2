package partition

import (
	"strconv"
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
	failing     *prometheus.GaugeVec
}

// NewMetrics returns Metrics of a stage and registers them with f. causes are the stage's own
// causes of dead letters. Check f.Err afterwards.
func NewMetrics(f *metrics.Factory, stage string, causes ...string) *Metrics {
	m := &Metrics{
		deadLetters: f.CounterVec("dead_letters_total", "Records given up as dead letters. A record that is read again counts again.", "stage", "cause"),
		stuck:       f.CounterVec("partition_stuck_total", "Restarts of a partition's loop because it hung.", "stage", "topic", "partition"),
		repeated: f.Counter("possible_duplicates_total",
			"Records that may have been appended twice, because an answer was missing or the broker forgot the producer id. Duplicates are harmless."),
		lost: f.CounterVec("retention_lost_records_total",
			"Records that were lost before they were settled, by retention, truncation, or a deletion of the topic. "+
				"An unknown number counts as 1.", "topic", "partition"),
		failing: f.GaugeVec("fetch_failing_since_timestamp_seconds", "Since when fetches of a partition have failed; 0 while they succeed.",
			"stage", "topic", "partition"),
	}
	for _, cause := range append(sharedCauses(), causes...) {
		m.deadLetters.WithLabelValues(stage, cause) // a series must exist at 0, or its first increase is not seen
	}
	return m
}

// Claimed creates the series of a partition at 0.
func (m *Metrics) Claimed(stage, topic string, partition int) {
	p := strconv.Itoa(partition)
	m.stuck.WithLabelValues(stage, topic, p)
	m.lost.WithLabelValues(topic, p)
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

// Lost counts records that the log no longer had and that were not settled.
func (m *Metrics) Lost(topic string, partition int, records int64) {
	m.lost.WithLabelValues(topic, strconv.Itoa(partition)).Add(float64(records))
}

// FetchFailing sets since when the fetches of a partition have failed. The zero time means that
// fetches succeed.
func (m *Metrics) FetchFailing(stage, topic string, partition int, since time.Time) {
	m.failing.WithLabelValues(stage, topic, strconv.Itoa(partition)).Set(metrics.Timestamp(since))
}

// FetchEnded means that the partition is no longer fetched.
func (m *Metrics) FetchEnded(stage, topic string, partition int) {
	m.failing.DeleteLabelValues(stage, topic, strconv.Itoa(partition))
}
