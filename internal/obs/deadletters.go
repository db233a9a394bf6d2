package obs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// deadLetters collects the metrics of pending dead letters, as of the last read of the
// topic. Before the first read it has no metrics.
type deadLetters struct {
	pending, oldest, read *prometheus.Desc

	mu     sync.Mutex
	counts map[string]int
	first  time.Time
	at     time.Time
}

func newDeadLetters() *deadLetters {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	return &deadLetters{
		pending: desc("dead_letters_pending", "Dead letters that are neither redriven nor discarded.", "cause"),
		oldest:  desc("dead_letters_oldest_pending_timestamp_seconds", "When the oldest pending dead letter was appended; absent if there is none."),
		read:    desc("dead_letters_read_timestamp_seconds", "When this process last read the dead-letter topic to its end; absent if it never did."),
	}
}

// DeadLettersPending sets the pending dead letters by cause, when the oldest of them was
// appended (zero: there is none), and the time of this state.
func (m *Metrics) DeadLettersPending(counts map[string]int, oldest, at time.Time) {
	d := m.dead
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts, d.first, d.at = counts, oldest, at
}

// Describe implements prometheus.Collector.
func (d *deadLetters) Describe(ch chan<- *prometheus.Desc) {
	ch <- d.pending
	ch <- d.oldest
	ch <- d.read
}

// Collect implements prometheus.Collector.
func (d *deadLetters) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for cause, n := range d.counts {
		ch <- prometheus.MustNewConstMetric(d.pending, prometheus.GaugeValue, float64(n), cause)
	}
	for desc, t := range map[*prometheus.Desc]time.Time{d.oldest: d.first, d.read: d.at} {
		if !t.IsZero() {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(t.UnixMilli())/1000)
		}
	}
}
