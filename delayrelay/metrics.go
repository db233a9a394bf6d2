package delayrelay

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
)

// relayMetrics are the metrics of a Relay. The methods are safe for concurrent use.
type relayMetrics struct {
	*partition.Metrics
	head                *prometheus.GaugeVec
	window, windowBytes *prometheus.GaugeVec
	lateness            prometheus.Histogram
	forwarded           *prometheus.CounterVec
	hops                *prometheus.CounterVec
	unrecorded          prometheus.Counter
	drifted             *prometheus.CounterVec
}

// newMetrics registers the metrics.
func newMetrics(r prometheus.Registerer) (*relayMetrics, error) {
	f := metrics.With(r)
	return &relayMetrics{
		Metrics: partition.NewMetrics(f, Stage),
		head: f.GaugeVec("delay_head_due_timestamp_seconds",
			"When the next record to leave a partition is due; 0 if none waits in memory.", "topic", "partition"),
		window:      f.GaugeVec("relay_window_records", "Records read ahead and waiting in memory.", "topic", "partition"),
		windowBytes: f.GaugeVec("relay_window_bytes", "Memory of the records read ahead.", "topic", "partition"),
		lateness: f.Histogram("relay_lateness_seconds", "How long after its due time a record was in the close topic.",
			metrics.LatenessBuckets),
		forwarded: f.CounterVec("relay_forwarded_total", "Records appended to the close topic, by the delay topic that they left.", "topic"),
		hops:      f.CounterVec("relay_hops_total", "Records moved to another delay topic.", "from", "to"),
		unrecorded: f.Counter("relay_unrecorded_runs_total",
			"Runs of acked records that did not fit into the metadata of a commit, and may be repeated after a take-over."),
		drifted: f.CounterVec("producer_stamped_batches_total", "Batches with a timestamp of their producer: the topic is not set to LogAppendTime.", "topic"),
	}, f.Err()
}

// Serve creates the series of a delay topic at 0. A series must exist at 0, or its first increase is not seen.
func (m *relayMetrics) Serve(topic string) {
	m.forwarded.WithLabelValues(topic)
	m.hops.WithLabelValues(topic, topic) // the other topics to which records hop follow from the load
	m.drifted.WithLabelValues(topic)
}

// Waiting sets the release time of the record that leaves a partition next, zero if none waits
// in memory, and how many records and bytes of the partition wait in memory.
func (m *relayMetrics) Waiting(topic string, partition int, head time.Time, records, bytes int) {
	p := strconv.Itoa(partition)
	m.head.WithLabelValues(topic, p).Set(metrics.Timestamp(head))
	m.window.WithLabelValues(topic, p).Set(float64(records))
	m.windowBytes.WithLabelValues(topic, p).Set(float64(bytes))
}

// Revoked means that the partition is no longer assigned to this process.
func (m *relayMetrics) Revoked(topic string, partition int) {
	p := strconv.Itoa(partition)
	m.head.DeleteLabelValues(topic, p)
	m.window.DeleteLabelValues(topic, p)
	m.windowBytes.DeleteLabelValues(topic, p)
}

// report updates the metrics of the partition, and what the relay's memory counts of it.
func (h *handler) report() {
	h.relay.memory.Use(h.bytes() - h.used)
	h.used = h.bytes()
	first := int64(math.MaxInt64)
	if head, ok := h.window.head(); ok {
		first = head.release
	}
	for f := range h.flights {
		first = min(first, f.first)
	}
	if len(h.ready) > 0 {
		first = min(first, h.ready[0].DueAt)
	}
	if since := h.loop.FailingSince(); !since.IsZero() { // records wait for a topic that does not accept them
		first = min(first, h.timeAt(since).UnixMilli())
	}
	var release time.Time
	if first != math.MaxInt64 {
		release = time.UnixMilli(first)
	}
	h.metrics.Waiting(h.loop.Claim.Topic, h.loop.Claim.Partition, release, len(h.window.heap), h.window.bytes)
}
