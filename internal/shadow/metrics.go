package shadow

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
)

// shadowMetrics are the metrics of a Shadow. The methods are safe for concurrent use.
type shadowMetrics struct {
	*partition.Metrics
	verdicts *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*shadowMetrics, error) {
	f := metrics.With(r)
	m := &shadowMetrics{
		Metrics:  partition.NewMetrics(f, Stage),
		verdicts: f.CounterVec("shadow_verdicts_total", "Verdicts of a shadow run: what a close would have done. A record that is read again counts again.", "verdict"),
	}
	for _, v := range []orderclose.Verdict{
		orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.NotDue, orderclose.Excluded, orderclose.NotFound, orderclose.Failed,
	} {
		m.verdicts.WithLabelValues(string(v)) // a series must exist at 0, or its first increase is not seen
	}
	return m, f.Err()
}

// Verdict counts one verdict.
func (m *shadowMetrics) Verdict(v orderclose.Verdict) { m.verdicts.WithLabelValues(string(v)).Inc() }
