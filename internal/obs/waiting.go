package obs

import "github.com/prometheus/client_golang/prometheus"

// waitingMetrics are the metrics of waiting records, as read from Kafka.
type waitingMetrics struct {
	waitingOverdue *prometheus.GaugeVec
	waitingUnseen  prometheus.Gauge
}

func newWaitingMetrics(f factory) waitingMetrics {
	return waitingMetrics{
		waitingOverdue: f.gauges("waiting_overdue_seconds", "By how much the most overdue record of a topic is overdue. A compensator reads it from Kafka every minute, independently of relays and closers.", "topic"),
		waitingUnseen:  f.gauge("waiting_unseen", "Number of topics and partitions that the compensator could not check, or whose log does not have the committed offset."),
	}
}

// WaitingOverdue sets by how many seconds records are overdue, by topic, and the number of
// topics and partitions with a problem. Other topics lose their value.
func (m *waitingMetrics) WaitingOverdue(seconds map[string]float64, unseen int) {
	m.waitingOverdue.Reset()
	for topic, s := range seconds {
		m.waitingOverdue.WithLabelValues(topic).Set(s)
	}
	m.waitingUnseen.Set(float64(unseen))
}
