package metrics

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
)

// LatenessBuckets are the bounds of histograms of lateness, in seconds: the normal case
// (milliseconds), a rebalance or a crash (seconds), and what a sweep finds (an hour).
var LatenessBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 7200}

// OtherCategories is the label value of all categories that topics.yaml does not list: their orders have its default delay.
const OtherCategories = "default"

// Closes are the metrics of closed orders, of closers and of sweeps.
type Closes struct {
	path     string
	category func(string) string
	verdicts *prometheus.CounterVec
	lateness *prometheus.HistogramVec
	early    prometheus.Counter
}

// NewCloses returns Closes and registers its metrics with f. path is how the orders are closed, or "replay" for records that were sent again to the
// pipeline. category returns the label value for an order's category. Each value adds a histogram, so it must return few. If category is nil, all
// orders have OtherCategories. Check f.Err afterwards.
func NewCloses(f *Factory, path orderclose.Path, category func(string) string) Closes {
	if category == nil {
		category = func(string) string { return OtherCategories }
	}
	c := Closes{
		path: string(path), category: category,
		verdicts: f.CounterVec("close_total", "Attempts to close an order, by path and result. The path replay: of a copy of a replay.", "path", "result"),
		lateness: f.HistogramVec("close_end_to_end_lateness_seconds",
			"How long after its due time an order was closed, by the database's clock. "+
				"A category that topics.yaml does not list counts as default. The path replay: of a copy of a replay, or a retry.",
			LatenessBuckets, "path", "category"),
		early: f.Counter("close_early_total", "Orders closed before they were due. Must be 0."),
	}
	c.lateness.WithLabelValues(c.path, OtherCategories)
	for _, v := range orderclose.Verdicts() {
		c.verdicts.WithLabelValues(c.path, string(v))
	}
	return c
}

// Verdict counts the verdict of one order.
func (c Closes) Verdict(v orderclose.Verdict) {
	c.verdicts.WithLabelValues(c.path, string(v)).Inc()
}

// Lateness observes how long after its due time the order of a request was closed, by the database's
// clock. An order that was closed early is counted, and logged as an error.
func (c Closes) Lateness(logger *slog.Logger, category, traceparent string, o orderclose.Outcome) {
	if o.Due.IsZero() || o.At.IsZero() { // a Store of a program may leave one out: the lateness is not known
		o.Due = o.At
	}
	if o.Remaining() > 0 {
		c.early.Inc()
		logger.Error("order closed before its due time", "order", o.OrderID, "due", o.Due, "closed", o.At)
	}
	Observe(c.lateness.WithLabelValues(c.path, c.category(category)), -o.Remaining(), traceparent)
}
