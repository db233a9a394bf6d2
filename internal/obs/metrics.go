// Package obs exposes metrics, health and readiness of a process over HTTP.
//
// NewMetrics registers the metrics of all stages with a registry, RegisterRuntime those of
// the Go runtime. Handler serves them, together with /-/healthy and /-/ready.
package obs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
)

// latenessBuckets span the normal case (milliseconds), a rebalance or a crash (seconds),
// and what a sweep finds (an hour).
var latenessBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 7200}

// Metrics counts for every stage and implements the Metrics interfaces of the stages. All
// names begin with orderclose_. Units are seconds, bytes or counts.
type Metrics struct {
	calls
	heads   *heads
	fetches *fetches
	dead    *deadLetters

	window, windowBytes *prometheus.GaugeVec
	windowDropped       *prometheus.CounterVec
	relayLateness       prometheus.Histogram
	early               prometheus.Counter
	forwarded           *prometheus.CounterVec
	hops                *prometheus.CounterVec
	deadLetters         *prometheus.CounterVec
	lost                *prometheus.CounterVec
	drifted             *prometheus.CounterVec
	repeated            prometheus.Counter
	unrecorded          prometheus.Counter
	drift               prometheus.Gauge
	writesFailing       prometheus.Gauge
	stuck               *prometheus.CounterVec
	mispicked           *prometheus.CounterVec
	clockOffset         *prometheus.GaugeVec

	verdicts         *prometheus.CounterVec
	closeLateness    *prometheus.HistogramVec
	closedEarly      prometheus.Counter
	batch            prometheus.Histogram
	concurrencyLimit prometheus.Gauge
	retries          *prometheus.CounterVec
	pendingBegan     prometheus.Counter
	pendingEnded     prometheus.Counter

	sweep         prometheus.Histogram
	lastSweep     prometheus.Gauge
	sweepingSince prometheus.Gauge
	found         *prometheus.CounterVec
	again         prometheus.Counter
	sweepsFailed  prometheus.Counter
	sweepsSkipped *prometheus.CounterVec
	lockAvailable prometheus.Gauge
	lockStuck     prometheus.Gauge
	sweepPeriod   prometheus.Gauge

	outboxMetrics
	releaseMetrics
	reloadMetrics
	waitingMetrics
}

// NewMetrics returns Metrics that are registered with r. now is the clock that heads are
// compared with; default time.Now.
func NewMetrics(r prometheus.Registerer, now func() time.Time) *Metrics {
	if now == nil {
		now = time.Now
	}
	f := factory{r}
	m := &Metrics{heads: newHeads(now), fetches: newFetches(), dead: newDeadLetters()}
	r.MustRegister(m.heads, m.fetches, m.dead)
	m.registerRelay(f)
	m.registerCloser(f)
	m.registerCompensator(f)
	m.outboxMetrics = newOutboxMetrics(f)
	m.releaseMetrics = newReleaseMetrics(f)
	m.reloadMetrics = newReloadMetrics(f)
	m.waitingMetrics = newWaitingMetrics(f)
	m.calls.register(f)
	return m
}

func (m *Metrics) registerRelay(f factory) {
	m.window = f.gauges("relay_window_records", "Records read ahead and waiting in memory.", "topic", "partition")
	m.windowBytes = f.gauges("relay_window_bytes", "Memory of the records read ahead.", "topic", "partition")
	m.windowDropped = f.counters("relay_window_dropped_total", "Records dropped from memory because the window was full; they are read again.", "topic")
	m.relayLateness = f.histogram("relay_lateness_seconds", "How long after its due time a record was in the close topic.", latenessBuckets)
	m.early = f.counter("relay_early_total", "Records that were appended to the close topic before they were due. Must be 0.")
	m.forwarded = f.counters("relay_forwarded_total", "Records appended to the close topic.", "topic")
	m.hops = f.counters("relay_hops_total", "Records moved to another delay topic.", "from", "to")
	m.deadLetters = f.counters("dead_letters_total", "Records written to the dead-letter topic.", "stage", "cause")
	m.lost = f.counters("retention_lost_records_total", "Offsets that were deleted before they were read.", "topic", "partition")
	m.mispicked = f.counters("mispicked_total", "Records that a producer put into the wrong bucket; they may be late.", "topic")
	m.stuck = f.counters("partition_stuck_total", "Restarts of a partition's loop because it hung.", "stage", "topic", "partition")
	m.writesFailing = f.gauge("database_write_failing_seconds", "For how long the database has refused the writes of a close, probed every 15 s and rolled back; 0 if it accepts them.")
	m.drift = f.gauge("topic_drift", "Number of differences between the topics and topics.yaml; checked every minute.")
	m.unrecorded = f.counter("relay_unrecorded_runs_total", "Runs of acked records that did not fit into the metadata of a commit, and may be repeated after a take-over.")
	m.repeated = f.counter("possible_duplicates_total", "Records that may have been appended twice, because the broker forgot their producer id. Duplicates are harmless.")
	m.clockOffset = f.gauges("clock_offset_seconds", "By how much another clock is ahead of the clock of this machine; absent until the first measurement.", "against")
	m.drifted = f.counters("producer_stamped_batches_total", "Batches with a timestamp of their producer: the topic is not set to LogAppendTime.", "topic")
}

func (m *Metrics) registerCloser(f factory) {
	m.verdicts = f.counters("close_total", "Attempts to close an order, by path and result.", "path", "result")
	m.closeLateness = f.histograms("close_end_to_end_lateness_seconds", "How long after its due time an order was closed, by the database's clock.", latenessBuckets, "path")
	m.closedEarly = f.counter("close_early_total", "Orders closed before they were due. Must be 0.")
	m.concurrencyLimit = f.gauge("close_concurrency_limit_orders", "Limit of orders in transactions at once; smaller while the database is slow.")
	m.retries = f.counters("retry_total", "Orders that could not be closed and will be retried, by cause.", "cause")
	m.pendingBegan = f.counter("payment_pending_began_total", "Orders that started to wait for an answer of the payment provider.")
	m.pendingEnded = f.counter("payment_pending_ended_total", "Orders that stopped waiting for the payment provider. The difference, over all closers, is the number that waits.")
	m.batch = f.histogram("close_batch_seconds", "How long closing one batch took.", prometheus.ExponentialBuckets(.001, 2, 14))
}

func (m *Metrics) registerCompensator(f factory) {
	m.sweep = f.histogram("compensator_sweep_seconds", "How long a sweep took.", prometheus.ExponentialBuckets(.01, 2, 16))
	m.lastSweep = f.gauge("compensator_last_success_timestamp_seconds", "When any process last finished a sweep, by the database's clock, read every minute; 0 if no sweep was finished.")
	m.sweepingSince = f.gauge("compensator_sweep_running_since_timestamp_seconds", "Start of the running sweep of this process; 0 if none is running.")
	m.found = f.counters("compensator_found_total", "Overdue orders that sweeps found, by the reason why the pipeline missed them; not_closed: the sweep did not close them either.", "cause")
	for _, c := range compensator.Causes() {
		m.found.WithLabelValues(string(c)) // a series must exist at 0, or its first increase is not seen
	}
	m.again = f.counter("compensator_scheduled_again_total", "Orders scheduled again after records were lost.")
	m.sweepsFailed = f.counter("compensator_failed_total", "Sweeps that failed.")
	m.sweepsSkipped = f.counters("compensator_skipped_total", "Due sweeps that were skipped: held (another process sweeps) or running (this process still sweeps).", "reason")
	m.lockAvailable = f.gauge("compensator_lock_available", "1 if Redis answers for the lock, else 0; checked every minute.")
	m.lockAvailable.Set(1)
	m.lockStuck = f.gauge("compensator_lock_stuck", "1 if the key of the lock in Redis has no expiry or one that is too long, so that no living process holds it; checked every minute.")
	m.sweepPeriod = f.gauge("compensator_period_seconds", "Configured time from the start of one sweep to the next; 0 in a process without a compensator.")
}

// Head implements delayrelay.Metrics.
func (m *Metrics) Head(topic string, partition int, release time.Time) {
	m.heads.set(topic, partition, release)
}

// Revoked implements delayrelay.Metrics.
func (m *Metrics) Revoked(topic string, partition int) {
	m.heads.forget(topic, partition)
	m.window.DeleteLabelValues(topic, itoa(partition))
	m.windowBytes.DeleteLabelValues(topic, itoa(partition))
}

// Window implements delayrelay.Metrics.
func (m *Metrics) Window(topic string, partition, records, bytes int) {
	p := itoa(partition)
	m.window.WithLabelValues(topic, p).Set(float64(records))
	m.windowBytes.WithLabelValues(topic, p).Set(float64(bytes))
}

// WindowDropped implements delayrelay.Metrics.
func (m *Metrics) WindowDropped(topic string, records int) {
	m.windowDropped.WithLabelValues(topic).Add(float64(records))
}

// Forwarded implements delayrelay.Metrics.
func (m *Metrics) Forwarded(topic string, lateness []time.Duration) {
	m.forwarded.WithLabelValues(topic).Add(float64(len(lateness)))
	for _, d := range lateness {
		m.relayLateness.Observe(d.Seconds())
	}
}

// Early implements delayrelay.Metrics.
func (m *Metrics) Early(string) { m.early.Inc() }

// Hopped implements delayrelay.Metrics.
func (m *Metrics) Hopped(from, to string, records int) {
	m.hops.WithLabelValues(from, to).Add(float64(records))
}

// Repeated implements the Metrics of the stages that append.
func (m *Metrics) Repeated(records int) { m.repeated.Add(float64(records)) }

// DeadLettered implements the Metrics of the stages that write dead letters.
func (m *Metrics) DeadLettered(stage, cause string) {
	m.deadLetters.WithLabelValues(stage, cause).Inc()
}

// Lost implements the Metrics of the stages that read a log.
func (m *Metrics) Lost(topic string, partition int, records int64) {
	m.lost.WithLabelValues(topic, itoa(partition)).Add(float64(max(records, 1)))
}

// Mispicked implements delayrelay.Metrics.
func (m *Metrics) Mispicked(topic string) { m.mispicked.WithLabelValues(topic).Inc() }

// Stuck implements the Metrics of the stages that serve partitions.
func (m *Metrics) Stuck(stage, topic string, partition int) {
	m.stuck.WithLabelValues(stage, topic, itoa(partition)).Inc()
}

// DatabaseWriteFailing sets for how long the writes of a close have failed; 0: they succeed.
func (m *Metrics) DatabaseWriteFailing(d time.Duration) { m.writesFailing.Set(d.Seconds()) }

// TopicDrift sets the number of differences between the topics and the configuration.
func (m *Metrics) TopicDrift(findings int) { m.drift.Set(float64(findings)) }

// Unrecorded implements delayrelay.Metrics.
func (m *Metrics) Unrecorded(runs int) { m.unrecorded.Add(float64(runs)) }

// ClockOffset sets by how much another clock is ahead of the clock of this machine.
func (m *Metrics) ClockOffset(against string, offset time.Duration) {
	m.clockOffset.WithLabelValues(against).Set(offset.Seconds())
}

// Drifted implements delayrelay.Metrics.
func (m *Metrics) Drifted(topic string, batches int) {
	m.drifted.WithLabelValues(topic).Add(float64(batches))
}

// Verdict implements the Metrics of the stages that close.
func (m *Metrics) Verdict(path orderclose.Path, v orderclose.Verdict) {
	m.verdicts.WithLabelValues(string(path), string(v)).Inc()
}

// Lateness implements the Metrics of the stages that close.
func (m *Metrics) Lateness(path orderclose.Path, d time.Duration) {
	if d < 0 {
		m.closedEarly.Inc()
	}
	m.closeLateness.WithLabelValues(string(path)).Observe(d.Seconds())
}

// Batch implements closer.Metrics.
func (m *Metrics) Batch(_ orderclose.Path, _ int, took time.Duration) {
	m.batch.Observe(took.Seconds())
}

// Pace implements closer.Metrics.
func (m *Metrics) ConcurrencyLimit(orders int) { m.concurrencyLimit.Set(float64(orders)) }

// Retried implements closer.Metrics.
func (m *Metrics) Retried(cause string) { m.retries.WithLabelValues(cause).Inc() }

// PaymentPending implements closer.Metrics.
func (m *Metrics) PaymentPending(waits bool) {
	if waits {
		m.pendingBegan.Inc()
	} else {
		m.pendingEnded.Inc()
	}
}

// Swept implements compensator.Metrics.
func (m *Metrics) Swept(r compensator.Report) {
	m.sweep.Observe(r.Took().Seconds())
}

// LastSweep implements compensator.Metrics.
func (m *Metrics) LastSweep(finished time.Time) { m.lastSweep.Set(timestamp(finished)) }

// Sweeping implements compensator.Metrics.
func (m *Metrics) Sweeping(since time.Time) { m.sweepingSince.Set(timestamp(since)) }

// timestamp returns t in unix seconds, or 0 for the zero time.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// Missed implements compensator.Metrics.
func (m *Metrics) Missed(cause compensator.Cause, orders int) {
	m.found.WithLabelValues(string(cause)).Add(float64(orders))
}

// Rescheduled implements compensator.Metrics.
func (m *Metrics) Rescheduled(orders int) { m.again.Add(float64(orders)) }

// SweepFailed implements compensator.Metrics.
func (m *Metrics) SweepFailed() { m.sweepsFailed.Inc() }

// SweepSkipped implements compensator.Metrics.
func (m *Metrics) SweepSkipped(reason string) { m.sweepsSkipped.WithLabelValues(reason).Inc() }

// LockAvailable implements compensator.Metrics.
func (m *Metrics) LockAvailable(ok bool) {
	m.lockAvailable.Set(map[bool]float64{true: 1}[ok])
}

// LockStuck implements compensator.Metrics.
func (m *Metrics) LockStuck(stuck bool) {
	m.lockStuck.Set(map[bool]float64{true: 1}[stuck])
}

// SweepPeriod sets the configured period of sweeps.
func (m *Metrics) SweepPeriod(d time.Duration) { m.sweepPeriod.Set(d.Seconds()) }

// heads collects by how much the head of each partition is overdue. It computes the value
// when it is collected, because a loop that hangs cannot report.
type heads struct {
	now  func() time.Time
	desc *prometheus.Desc

	mu       sync.Mutex
	releases map[head]time.Time
}

type head struct {
	topic     string
	partition int
}

func newHeads(now func() time.Time) *heads {
	return &heads{
		now: now, releases: map[head]time.Time{},
		desc: prometheus.NewDesc("orderclose_delay_head_overdue_seconds",
			"By how much the next record to leave a partition is overdue; 0 if it is not.",
			[]string{"topic", "partition"}, nil),
	}
}

func (h *heads) set(topic string, partition int, release time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases[head{topic, partition}] = release
}

func (h *heads) forget(topic string, partition int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.releases, head{topic, partition})
}

// Describe implements prometheus.Collector.
func (h *heads) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *heads) Collect(ch chan<- prometheus.Metric) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, release := range h.releases {
		overdue := time.Duration(0)
		if !release.IsZero() {
			overdue = max(now.Sub(release), 0)
		}
		ch <- prometheus.MustNewConstMetric(h.desc, prometheus.GaugeValue, overdue.Seconds(), at.topic, itoa(at.partition))
	}
}
