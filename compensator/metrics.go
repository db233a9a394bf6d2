package compensator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
)

// sweepMetrics are the metrics of a Compensator. The methods are safe for concurrent use.
type sweepMetrics struct {
	metrics.Closes
	seconds       prometheus.Histogram
	lastSweep     prometheus.Gauge
	runningSince  prometheus.Gauge
	found         *prometheus.CounterVec
	failed        prometheus.Counter
	skipped       *prometheus.CounterVec
	lockAvailable prometheus.Gauge
	lockStuck     prometheus.Gauge
	rechecked     *prometheus.CounterVec
	recheckBehind prometheus.Gauge
}

// newMetrics registers the metrics. period is the time between two sweeps, category is
// Options.Category.
func newMetrics(r prometheus.Registerer, period time.Duration, category func(string) string) (*sweepMetrics, error) {
	f := metrics.With(r)
	m := &sweepMetrics{
		Closes:  metrics.NewCloses(f, orderclose.PathSweep, category),
		seconds: f.Histogram("compensator_sweep_seconds", "How long a sweep took.", prometheus.ExponentialBuckets(.01, 2, 16)),
		lastSweep: f.Gauge("compensator_last_success_timestamp_seconds",
			"When any process last finished a sweep, by the database's clock, read every minute; 0 if no sweep was finished."),
		runningSince: f.Gauge("compensator_sweep_running_since_timestamp_seconds", "Start of the running sweep of this process; 0 if none is running."),
		found: f.CounterVec("compensator_found_total",
			"Overdue orders that sweeps found, by the reason why the pipeline missed them; not_closed: the sweep did not close them either, and not "+
				"because of a pause.", "cause"),
		failed: f.Counter("compensator_failed_total", "Sweeps that failed."),
		skipped: f.CounterVec("compensator_skipped_total",
			"Due sweeps that were skipped: held (another process sweeps), running (this process still sweeps) or paused (by an operator).", "reason"),
		lockAvailable: f.Gauge("compensator_lock_available", "1 if the server of the lock, Redis or the database, gives the lock, else 0; checked every 15 s."),
		lockStuck: f.Gauge("compensator_lock_stuck",
			"1 if the key of the lock in Redis has no expiry or one that is too long, so that no living process holds it; checked every 15 s."),
		rechecked: f.CounterVec("compensator_rechecked_total",
			"Closed orders that the payment provider was asked about again, by result: late_payment (one was recorded), none, unknown (the next step "+
				"asks again) or given_up (no answer, and no step is left).", "result"),
		recheckBehind: f.Gauge("compensator_recheck_behind_seconds",
			"By how much the questions of this process about closed orders are behind closer.payment.recheck, or for how long they have failed; 0 if "+
				"none is due."),
	}
	for _, result := range []string{recheckFound, recheckNone, recheckUnknown, recheckGivenUp} {
		m.rechecked.WithLabelValues(result)
	}
	for _, c := range append(Causes(), notClosed) {
		m.found.WithLabelValues(string(c)) // a series must exist at 0, or its first increase is not seen
	}
	for _, reason := range []string{skippedHeld, skippedRunning, skippedPaused} {
		m.skipped.WithLabelValues(reason)
	}
	m.lockAvailable.Set(1)
	f.Gauge("compensator_period_seconds", "Configured time from the start of one sweep to the next.").Set(period.Seconds())
	return m, f.Err()
}

// Reasons why a due sweep was not begun.
const (
	skippedHeld    = "held"    // another process held the lock
	skippedRunning = "running" // this process was still sweeping
	skippedPaused  = "paused"  // an operator has paused sweeps
)

// Missed counts orders that a sweep found, by the cause.
func (m *sweepMetrics) Missed(cause Cause, orders int) {
	m.found.WithLabelValues(string(cause)).Add(float64(orders))
}

func zeroOrOne(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
