package pipeline

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
)

// appMetrics are the metrics of the process, and of the calls of the user's services; each
// stage has its own. The methods are safe for concurrent use.
type appMetrics struct {
	seconds                      *prometheus.HistogramVec
	reminderLate                 prometheus.Histogram
	refused, payments, rechecked *prometheus.CounterVec

	breaker, timeout, failing, waiting, waitingOverdue, waitingFarthest, paused, delay, deadLetters, overdue *prometheus.GaugeVec
	clockOffset, producerClock, producerOrders                                                               *prometheus.GaugeVec

	reloaded, waitingUnseen, remindersDone, recheckBehind prometheus.Gauge

	// Without labels: a value that is not known has no series.
	deadOldest, deadRead, overduePaused, overdueOld, overdueOldest, latePayments, lateOldest, drift, writesFailing *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*appMetrics, error) {
	f := metrics.With(r)
	m := &appMetrics{
		breaker: f.GaugeVec("breaker_state",
			"State of a service's circuit breaker: 0 closed (calls are made), 1 half-open (one call tests the service), 2 open (no calls).", "endpoint"),
		seconds: f.HistogramVec("call_seconds",
			"Duration of a call of a service, by result: ok, failed or timeout.", prometheus.ExponentialBuckets(.001, 2, 13), "endpoint", "result"),
		refused: f.CounterVec("calls_refused_total",
			"Calls of a service that were not made, because the circuit breaker is open or the service asked for a pause.", "endpoint"),
		timeout:  f.GaugeVec("call_timeout_seconds", "Timeout of the next call of a service.", "endpoint"),
		failing:  metrics.CallsFailing(f),
		payments: f.CounterVec("payment_answers_total", "Orders that the payment provider was asked about before their close, by its answer.", "answer"),
		reloaded: f.Gauge("config_last_reload_successful", "1 if the last read topics.yaml was accepted; 0 if it was refused and the previous one is in effect."),
		waiting: f.GaugeVec("waiting_records",
			"Records that wait in a topic and are not settled. A compensator reads it from Kafka every minute, as the other metrics of waiting "+
				"records. Partitions that did not answer are left out; waiting_unseen counts them.", "topic"),
		waitingOverdue: f.GaugeVec("waiting_overdue_seconds",
			"By how much the most overdue record of a topic is overdue. A compensator reads it from Kafka every minute, independently of relays and "+
				"closers.", "topic"),
		waitingFarthest: f.GaugeVec("waiting_farthest_due_seconds",
			"How far ahead the latest due time of a topic's waiting records lies, of those that the check reads: the first and the last of each "+
				"partition, and samples between; 0 if no record is due later.", "topic"),
		waitingUnseen: f.Gauge("waiting_unseen",
			"Number of topics and partitions that the compensator could not check, or whose log does not have the committed offset."),
		writesFailing: f.GaugeVec("database_write_failing_seconds", "For how long the database has refused the writes of a close, probed every 15 s and "+
			"rolled back; 0 if it accepts them. Absent where a service or a Store of the program closes the orders."),
		drift: f.GaugeVec("topic_drift", "Number of differences between the topics and topics.yaml; checked every minute. Absent if they cannot be checked."),
		paused: f.GaugeVec("paused",
			"1 while closing is paused, of all orders or of a category; 0 otherwise.", "orders"),
		clockOffset: f.GaugeVec("clock_offset_seconds",
			"By how much the clock by which orders are due, the database's or without one the brokers', is ahead of this machine's.", "against"),
		producerClock: f.GaugeVec("producer_clock_ahead_seconds",
			"By how much the clock is ahead that writes the creation times of new orders, negative if it is behind, by the part that compared it "+
				"with the database's or the brokers' clock; 0 if nothing is wrong. The worst of the last five minutes.", "seen_by"),
		producerOrders: f.GaugeVec("producer_clock_orders", "Orders that were created by the wrong clock of producer_clock_ahead_seconds.", "seen_by"),
		delay: f.GaugeVec("delay_seconds",
			"The delay of a category in the topics.yaml that the process uses; default: of all that the file does not list.", "category"),
		deadLetters: f.GaugeVec("dead_letters_open", "Dead letters whose orders are unpaid, and those of the last 24 hours whose orders are not known.", "cause"),
		deadOldest:  f.GaugeVec("dead_letters_oldest_open_timestamp_seconds", "When the oldest open dead letter was appended; absent if there is none."),
		overdue: f.GaugeVec("overdue_orders",
			"Unpaid orders that have been due in the database for more than 5 s, without excluded and paused ones; 1000 orders are read at most. One "+
				"compensator counts them every 30 s, and every 5 s while there are some; others have no value.", "category"),
		overduePaused: f.GaugeVec("overdue_orders_paused", "Overdue orders that wait because somebody has paused closing; counted as overdue_orders."),
		overdueOld: f.GaugeVec("overdue_orders_old", "Orders, up to 100, that stay open because they were due long before the database was first "+
			"migrated, and topics.yaml does not accept old_orders. Absent where overdue_orders is."),
		overdueOldest: f.GaugeVec("overdue_orders_oldest_seconds",
			"For how long the oldest of the overdue orders has been due; 0 if there is none. Absent where overdue_orders is."),
		latePayments: f.GaugeVec("late_payments_unresolved",
			"Payments that came after their order was closed, or twice, of which nobody has said what becomes of the money. Counted with "+
				"overdue_orders, by one compensator; others have no value."),
		lateOldest: f.GaugeVec("late_payments_oldest_timestamp_seconds",
			"When the oldest of late_payments_unresolved was found; 0 if there is none. Absent where late_payments_unresolved is."),
		reminderLate: f.Histogram("reminder_lateness_seconds",
			"How long after its time the reminder of an unpaid order was written. Its count is the number of reminders.", prometheus.ExponentialBuckets(.25, 2, 14)),
		remindersDone: f.Gauge("reminders_complete_timestamp_seconds",
			"Up to this time, by its own clock, this compensator has written every reminder; before its first round is complete, when that "+
				"began; 0: topics.yaml has no rule with remind, or another compensator writes them."),
		rechecked: f.CounterVec("compensator_rechecked_total",
			"Closed orders that the payment provider was asked about again, by result: late_payment (one was recorded), none, unknown (the next step "+
				"asks again) or given_up (no answer, and no step is left).", "result"),
		recheckBehind: f.Gauge("compensator_recheck_behind_seconds",
			"By how much the questions of this process about closed orders are behind closer.payment.recheck, or for how long they have failed; 0 if "+
				"none is due."),
		deadRead: f.GaugeVec("dead_letters_read_timestamp_seconds", "When this process last counted the open dead letters; absent if it never did."),
	}
	for _, result := range []string{payment.RecheckFound, payment.RecheckNone, payment.RecheckUnknown, payment.RecheckGivenUp} {
		m.Rechecked(result, 0)
	}
	for _, a := range []payment.Answer{payment.Paid, payment.Unpaid, payment.Cancelled, payment.Unknown} {
		m.PaymentAnswers(a, 0) // a series must exist at 0, or its first increase is not seen
	}
	m.Skews(nil)
	m.Paused(nil)
	m.ConfigReloaded(true) // the process started with a valid file
	return m, f.Err()
}

// Skews sets by how much clocks of checkouts are wrong.
func (m *appMetrics) Skews(found []clock.Skew) {
	for _, place := range clock.Places() {
		var worst clock.Skew
		for _, s := range found {
			if s.Place == place && s.Ahead.Abs() > worst.Ahead.Abs() {
				worst = s
			}
		}
		m.producerClock.WithLabelValues(place).Set(worst.Ahead.Seconds())
		m.producerOrders.WithLabelValues(place).Set(float64(worst.Orders))
	}
}

// breakerValues are the values of the gauge for the states of a circuit breaker.
var breakerValues = map[string]float64{httpcall.BreakerClosed: 0, httpcall.BreakerHalfOpen: 1, httpcall.BreakerOpen: 2}

// Breaker implements the Metrics of packages httpclose and payment. It is called first for an
// endpoint, and creates the other series of the endpoint at 0.
func (m *appMetrics) Breaker(endpoint, state string) {
	m.breaker.WithLabelValues(endpoint).Set(breakerValues[state])
	for _, result := range []string{httpcall.ResultOK, httpcall.ResultFailed, httpcall.ResultTimeout} {
		m.seconds.WithLabelValues(endpoint, result)
	}
	m.refused.WithLabelValues(endpoint)
	m.failing.WithLabelValues(endpoint)
}

// Called implements the Metrics of packages httpclose and payment.
func (m *appMetrics) Called(endpoint, result string, took time.Duration) {
	if result == httpcall.ResultRefused {
		m.refused.WithLabelValues(endpoint).Inc()
		return
	}
	m.seconds.WithLabelValues(endpoint, result).Observe(took.Seconds())
}

// CallLimit implements the Metrics of packages httpclose and payment.
func (m *appMetrics) CallLimit(endpoint string, limit time.Duration) {
	m.timeout.WithLabelValues(endpoint).Set(limit.Seconds())
}

// CallsFailing implements the Metrics of packages httpclose and payment.
func (m *appMetrics) CallsFailing(endpoint string, since time.Time) {
	m.failing.WithLabelValues(endpoint).Set(metrics.Timestamp(since))
}

// PaymentAnswers implements payment.Metrics.
func (m *appMetrics) PaymentAnswers(a payment.Answer, orders int) {
	m.payments.WithLabelValues(string(a)).Add(float64(orders))
}

// Rechecked implements payment.RecheckMetrics.
func (m *appMetrics) Rechecked(result string, orders int) {
	m.rechecked.WithLabelValues(result).Add(float64(orders))
}

// RecheckBehind implements payment.RecheckMetrics.
func (m *appMetrics) RecheckBehind(d time.Duration) { m.recheckBehind.Set(d.Seconds()) }

// ConfigReloaded sets whether the last read topics.yaml was accepted.
func (m *appMetrics) ConfigReloaded(ok bool) {
	m.reloaded.Set(map[bool]float64{true: 1}[ok])
}

// Delays sets the delay of each category and rule, and removes those of others.
func (m *appMetrics) Delays(d orderclose.Delays) {
	m.delay.Reset()
	for name, delay := range config.NamedDelays(d) {
		others := map[string]string{"": metrics.OtherCategories, metrics.OtherCategories: "category default"}[name] // a category may have this name
		m.delay.WithLabelValues(cmp.Or(others, name)).Set(delay.Seconds())
	}
}

// Waiting sets what waits in each topic, and the number of topics and partitions with a problem.
// Topics that are not in r, or of which nothing is known, lose their values.
func (m *appMetrics) Waiting(r backlog.Status) {
	m.waiting.Reset()
	m.waitingOverdue.Reset()
	m.waitingFarthest.Reset()
	for _, t := range r.Topics {
		if t.Problem == "" {
			m.waiting.WithLabelValues(t.Topic).Set(float64(t.Waiting))
			m.waitingOverdue.WithLabelValues(t.Topic).Set(t.Overdue())
			m.waitingFarthest.WithLabelValues(t.Topic).Set(t.FarthestDue(r.At))
		}
	}
	m.waitingUnseen.Set(float64(r.Problems()))
}

// OverdueOrders sets how many orders are overdue in the database. The zero value removes all numbers.
func (m *appMetrics) OverdueOrders(o backlog.OverdueOrders) {
	m.overdue.Reset()
	m.overduePaused.Reset()
	m.overdueOldest.Reset()
	m.overdueOld.Reset()
	if o.At.IsZero() {
		return
	}
	for category, n := range o.Categories {
		m.overdue.WithLabelValues(category).Set(float64(n))
	}
	m.overduePaused.WithLabelValues().Set(float64(o.Paused))
	m.overdueOld.WithLabelValues().Set(float64(o.Old))
	m.overdueOldest.WithLabelValues().Set(0)
	if o.Orders > 0 {
		m.overdueOldest.WithLabelValues().Set(o.At.Sub(o.Oldest).Seconds())
	}
}

// LatePayments sets how many late payments nobody has resolved; nil: that is not known, or another process counts.
func (m *appMetrics) LatePayments(sum *store.LateSummary) {
	m.latePayments.Reset()
	m.lateOldest.Reset()
	if sum != nil {
		m.latePayments.WithLabelValues().Set(float64(sum.Unresolved))
		m.lateOldest.WithLabelValues().Set(metrics.Timestamp(sum.Oldest))
	}
}

// Reminders counts the reminders of a round, and sets up to when all are written; zero: no rule asks for some.
func (m *appMetrics) Reminders(late []time.Duration, complete time.Time) {
	for _, l := range late {
		m.reminderLate.Observe(l.Seconds())
	}
	m.remindersDone.Set(metrics.Timestamp(complete))
}

// Paused sets whether all orders, and whether those of a category, are paused.
func (m *appMetrics) Paused(on []pausing.Pause) {
	value := map[string]float64{"all": 0, "category": 0}
	for _, p := range on {
		if p.Category == "" {
			value["all"] = 1
		} else {
			value["category"] = 1
		}
	}
	for orders, v := range value {
		m.paused.WithLabelValues(orders).Set(v)
	}
}

// DeadLettersOpen sets the open dead letters by cause, when the oldest of them was
// appended (zero: there is none), and the time of this state.
func (m *appMetrics) DeadLettersOpen(s deadletters.State) {
	for cause, n := range s.Open {
		m.deadLetters.WithLabelValues(cause).Set(float64(n))
	}
	if _, ok := s.Open[deadletters.Other]; !ok {
		m.deadLetters.DeleteLabelValues(deadletters.Other)
	}
	m.deadOldest.Reset()
	if !s.Oldest.IsZero() {
		m.deadOldest.WithLabelValues().Set(metrics.Timestamp(s.Oldest))
	}
	m.deadRead.WithLabelValues().Set(metrics.Timestamp(s.At))
}
