package release

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
)

// workerMetrics are the metrics of a Worker. The methods are safe for concurrent use.
type workerMetrics struct {
	*partition.Metrics
	calls   *prometheus.CounterVec
	seconds prometheus.Histogram
	waiting prometheus.Gauge
	failing *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*workerMetrics, error) {
	f := metrics.With(r)
	m := &workerMetrics{
		Metrics: partition.NewMetrics(f, Stage, causeRefused, causeFailed, causeUnavailable),
		calls: f.CounterVec("stock_release_total", "Calls that release stock, by result: released, already, "+
			"failed (will be retried) or refused (dead letter). given_up counts releases, not calls: they failed too often and are in a dead letter.", "result"),
		seconds: f.Histogram("stock_release_seconds", "Duration of a call that releases stock.", prometheus.ExponentialBuckets(.001, 2, 14)),
		waiting: f.Gauge("stock_release_waiting", "Events that this process has read and not finished."),
		failing: metrics.CallsFailing(f),
	}
	for _, r := range []result{resultReleased, resultAlready, resultFailed, resultRefused, resultGivenUp} {
		m.calls.WithLabelValues(string(r)) // a series must exist at 0, or its first increase is not seen
	}
	m.CallsFailing(time.Time{})
	return m, f.Err()
}

// Called counts one call and its duration.
func (m *workerMetrics) Called(r result, took time.Duration) {
	m.calls.WithLabelValues(string(r)).Inc()
	m.seconds.Observe(took.Seconds())
}

// CallsFailing sets since when all calls of the stock service have failed. The zero time means
// that the last call succeeded or was refused.
func (m *workerMetrics) CallsFailing(since time.Time) {
	m.failing.WithLabelValues(Endpoint).Set(metrics.Timestamp(since))
}
