package obs

import "github.com/prometheus/client_golang/prometheus"

// waitingMetrics are what a process sees of records that wait, whoever moves them.
type waitingMetrics struct {
	waitingOverdue *prometheus.GaugeVec
	waitingUnseen  prometheus.Gauge
}

func newWaitingMetrics(f factory) waitingMetrics {
	return waitingMetrics{
		waitingOverdue: f.gauges("waiting_overdue_seconds", "By how much the record that is overdue the most in a topic is overdue, as a compensator sees it in Kafka each minute, whatever relays and closers believe.", "topic"),
		waitingUnseen:  f.gauge("waiting_unseen", "How many topics and partitions that compensator could not look at, or found without what is committed."),
	}
}

// WaitingOverdue says by how much records are overdue, by topic, in seconds, and how many
// topics and partitions have a problem. A topic that is not named has no value any more.
func (m *waitingMetrics) WaitingOverdue(seconds map[string]float64, unseen int) {
	m.waitingOverdue.Reset()
	for topic, s := range seconds {
		m.waitingOverdue.WithLabelValues(topic).Set(s)
	}
	m.waitingUnseen.Set(float64(unseen))
}
