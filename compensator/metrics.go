package compensator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/overdue"
)

// sweepMetrics are the metrics of a Compensator. The methods are safe for concurrent use.
type sweepMetrics struct {
	metrics.Closes
	seconds prometheus.Histogram
	found   *prometheus.CounterVec
	failed  prometheus.Counter

	untried, lastPass, resting, lockAvailable, lockStuck, every, unfinished prometheus.Gauge
}

// newMetrics registers the metrics. category is Options.Category.
func newMetrics(r prometheus.Registerer, category func(string) string) (*sweepMetrics, error) {
	f := metrics.With(r)
	m := &sweepMetrics{
		Closes:  metrics.NewCloses(f, orderclose.PathSweep, category),
		seconds: f.Histogram("compensator_pass_seconds", "How long a pass over all overdue orders took.", prometheus.ExponentialBuckets(.01, 2, 16)),
		lastPass: f.Gauge("compensator_last_pass_timestamp_seconds",
			"When this process last finished a pass over all overdue orders; 0 if it does not hold the lock or has finished none."),
		untried: f.Gauge("compensator_untried_since_timestamp_seconds",
			"The earliest time at which an order may have fallen due that the compensator has not tried to close, plus compensator_every_seconds; 0 if "+
				"this process does not hold the lock."),
		resting: f.Gauge("compensator_resting_orders", "Orders that could not be closed, and rest before this process tries them again."),
		found: f.CounterVec("compensator_found_total",
			"Overdue orders at the first try of the compensator, by kind: missed, after_pause and after_failure were closed, not_closed were not.", "kind"),
		failed:        f.Counter("compensator_failed_total", "Turns of the compensator that failed."),
		lockAvailable: f.Gauge("compensator_lock_available", "1 if the server of the first lock, Redis or the database, answers, else 0."),
		lockStuck: f.Gauge("compensator_lock_stuck",
			"1 if the key of the lock in Redis has no expiry or one that is too long, so that no living process holds it."),
		every: f.Gauge("compensator_every_seconds", "Time from the begin of a turn of the compensator to that of the next; 0 if this process runs none."),
		unfinished: f.Gauge("compensator_unfinished_hours",
			"How many of the last two full periods have no finished compensation; 0 if this process does not hold the lock."),
	}
	m.count(overdue.Counts{}) // a series must exist at 0, or its first increase is not seen
	m.lockAvailable.Set(1)
	return m, f.Err()
}

// count counts orders that a turn has decided on.
func (m *sweepMetrics) count(c overdue.Counts) {
	m.found.WithLabelValues("missed").Add(float64(c.Missed))
	m.found.WithLabelValues("after_pause").Add(float64(c.AfterPause))
	m.found.WithLabelValues("after_failure").Add(float64(c.AfterFailure))
	m.found.WithLabelValues("not_closed").Add(float64(c.NotClosed))
}

func zeroOrOne(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
