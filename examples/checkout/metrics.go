package checkout

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
)

// Counters are Metrics for Prometheus.
type Counters struct {
	unscheduled            prometheus.Counter
	touched, events, reads *prometheus.CounterVec
}

// NewCounters returns Counters that are registered with r.
func NewCounters(r prometheus.Registerer) *Counters {
	c := &Counters{
		unscheduled: prometheus.NewCounter(prometheus.CounterOpts{Name: "checkout_unscheduled_total",
			Help: "Orders whose record could not be published; the sweep closes them."}),
		touched: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "checkout_touched_total",
			Help: "Closes requested for orders that a request found past due, by result."}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "checkout_events_total",
			Help: "Events read, by reader and result: done, repeated, rejected, other (another type) or bad."}, []string{"reader", "result"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "checkout_reads_total",
			Help: "Reads of an order, by what answered: local, redis, filter (no such order) or database."}, []string{"source"}),
	}
	r.MustRegister(c.unscheduled, c.touched, c.events, c.reads)
	return c
}

// Unscheduled implements Metrics.
func (c *Counters) Unscheduled() { c.unscheduled.Inc() }

// Touched implements Metrics.
func (c *Counters) Touched(v orderclose.Verdict) { c.touched.WithLabelValues(string(v)).Inc() }

// Event implements Metrics.
func (c *Counters) Event(reader, result string) { c.events.WithLabelValues(reader, result).Inc() }

// Read implements Metrics.
func (c *Counters) Read(source string) { c.reads.WithLabelValues(source).Inc() }
