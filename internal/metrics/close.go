package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
)

// LatenessBuckets are the bounds of histograms of lateness, in seconds: the normal case
// (milliseconds), a rebalance or a crash (seconds), and what a sweep finds (an hour).
var LatenessBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 7200}

// Closes are the metrics of closed orders, of closers and of sweeps.
type Closes struct {
	verdicts *prometheus.CounterVec
	lateness *prometheus.HistogramVec
	early    prometheus.Counter
}

// NewCloses returns Closes and registers its metrics with f. Check f.Err afterwards.
func NewCloses(f *Factory) Closes {
	return Closes{
		verdicts: f.CounterVec("close_total", "Attempts to close an order, by path and result.", "path", "result"),
		lateness: f.HistogramVec("close_end_to_end_lateness_seconds", "How long after its due time an order was closed, by the database's clock.", LatenessBuckets, "path"),
		early:    f.Counter("close_early_total", "Orders closed before they were due. Must be 0."),
	}
}

// Verdict counts the verdict of one order.
func (c Closes) Verdict(path orderclose.Path, v orderclose.Verdict) {
	c.verdicts.WithLabelValues(string(path), string(v)).Inc()
}

// Lateness observes how long after its due time an order was closed, by the database's clock.
// A negative value means that the order was closed early.
func (c Closes) Lateness(path orderclose.Path, d time.Duration) {
	if d < 0 {
		c.early.Inc()
	}
	c.lateness.WithLabelValues(string(path)).Observe(d.Seconds())
}
