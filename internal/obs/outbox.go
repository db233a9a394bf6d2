package obs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/wire"
)

// outboxMetrics are the metrics of the dispatcher.
type outboxMetrics struct {
	oldest, rows *prometheus.GaugeVec
	dispatched   *prometheus.CounterVec
}

func newOutboxMetrics(f factory) outboxMetrics {
	return outboxMetrics{
		oldest:     f.gauges("outbox_oldest_unpublished_seconds", "Age of the oldest row in the outbox, by the database's clock; read every 5 s.", "outbox"),
		rows:       f.gauges("outbox_rows", "Rows in the outbox, counted up to 10,000; read every 5 s.", "outbox"),
		dispatched: f.counters("outbox_dispatched_total", "Rows that were published and deleted.", "outbox"),
	}
}

// Dispatched implements outbox.Metrics.
func (m outboxMetrics) Dispatched(box wire.Outbox, rows int) {
	m.dispatched.WithLabelValues(string(box)).Add(float64(rows))
}

// Backlog implements outbox.Metrics.
func (m outboxMetrics) Backlog(box wire.Outbox, b wire.OutboxBacklog) {
	m.oldest.WithLabelValues(string(box)).Set(b.Oldest.Seconds())
	m.rows.WithLabelValues(string(box)).Set(float64(b.Rows))
}

// releaseMetrics are the metrics of the release worker.
type releaseMetrics struct {
	released *prometheus.CounterVec
	took     prometheus.Histogram
	waiting  prometheus.Gauge
}

func newReleaseMetrics(f factory) releaseMetrics {
	return releaseMetrics{
		released: f.counters("stock_release_total", "Calls that release stock, by result: released, already, failed (will be retried), refused or given_up (dead letters).", "result"),
		took:     f.histogram("stock_release_seconds", "Duration of a call that releases stock.", prometheus.ExponentialBuckets(.001, 2, 14)),
		waiting:  f.gauge("stock_release_waiting", "Events that this process has read and not finished."),
	}
}

// StockRelease implements release.Metrics.
func (m releaseMetrics) StockRelease(result string, took time.Duration) {
	m.released.WithLabelValues(result).Inc()
	if took > 0 {
		m.took.Observe(took.Seconds())
	}
}

// StockWaiting implements release.Metrics.
func (m releaseMetrics) StockWaiting(more int) { m.waiting.Add(float64(more)) }
