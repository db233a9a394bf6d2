package outbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

// dispatcherMetrics are the metrics of a Dispatcher. The methods are safe for concurrent use.
type dispatcherMetrics struct {
	*partition.Metrics
	oldest, rows *prometheus.GaugeVec
	dispatched   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*dispatcherMetrics, error) {
	f := metrics.With(r)
	m := &dispatcherMetrics{
		Metrics: partition.NewMetrics(f, Stage),
		oldest: f.GaugeVec("outbox_oldest_unpublished_seconds",
			"Age of the oldest row in the outbox, by the database's clock; read every 10 s. While the outbox cannot be read, "+
				"the age that such a row may have.", "outbox"),
		rows:       f.GaugeVec("outbox_rows", "Rows in the outbox, counted up to 10,000; read every 10 s.", "outbox"),
		dispatched: f.CounterVec("outbox_dispatched_total", "Rows that were published and deleted.", "outbox"),
	}
	for _, box := range []wire.Outbox{wire.ScheduleOutbox, wire.EventOutbox} {
		m.dispatched.WithLabelValues(string(box)) // a series must exist at 0, or its first increase is not seen
	}
	return m, f.Err()
}

// backlog sets the metrics of an outbox.
func (m *dispatcherMetrics) backlog(box wire.Outbox, b wire.OutboxBacklog) {
	m.oldest.WithLabelValues(string(box)).Set(b.Oldest.Seconds())
	m.rows.WithLabelValues(string(box)).Set(float64(b.Rows))
}
