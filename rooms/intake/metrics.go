package intake

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
)

// intakeMetrics are the metrics of an Intake. The methods are safe for concurrent use.
type intakeMetrics struct {
	*partition.Metrics
	rows   *prometheus.CounterVec
	behind *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*intakeMetrics, error) {
	f := metrics.With(r)
	m := &intakeMetrics{
		Metrics: partition.NewMetrics(f, Stage),
		rows: f.CounterVec("intake_rows_total",
			"Rows of change records by what became of them. A record that is read again counts again; one that cannot be read is a dead letter.", "outcome"),
		behind: f.GaugeVec("intake_behind_since_timestamp_seconds",
			"When the oldest change record of a partition was written that was read and is not settled, "+
				"or the last one that was read while more wait; 0 if none.", "topic", "partition"),
	}
	for _, o := range outcomes {
		m.rows.WithLabelValues(string(o)) // a series must exist at 0, or its first increase is not seen
	}
	return m, f.Err()
}

// Behind sets since when a record of the partition waits; zero: none does.
func (m *intakeMetrics) Behind(topic string, partition int, since time.Time) {
	m.behind.WithLabelValues(topic, strconv.Itoa(partition)).Set(metrics.Timestamp(since))
}

// Revoked means that the partition is no longer assigned to this process.
func (m *intakeMetrics) Revoked(topic string, partition int) {
	m.behind.DeleteLabelValues(topic, strconv.Itoa(partition))
}
