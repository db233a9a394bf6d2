package obs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/httpcall"
)

// calls counts the calls of the user's services. It implements the Metrics of packages
// httpclose and payment.
type calls struct {
	breaker  *prometheus.GaugeVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	limit    *prometheus.GaugeVec
	payments *prometheus.CounterVec
	failing  *prometheus.GaugeVec
}

// breakerValues are the values of the gauge for the states of a circuit breaker.
var breakerValues = map[string]float64{httpcall.BreakerClosed: 0, httpcall.BreakerHalfOpen: 1, httpcall.BreakerOpen: 2}

func (c *calls) register(f factory) {
	c.breaker = f.gauges("breaker_state", "State of a service's circuit breaker: 0 closed (calls are made), 1 half-open (one call tests the service), 2 open (no calls).", "endpoint")
	c.seconds = f.histograms("call_seconds", "Duration of a call of a service, by result: ok, failed or timeout.", prometheus.ExponentialBuckets(.001, 2, 13), "endpoint", "result")
	c.refused = f.counters("calls_refused_total", "Calls of a service that were not made, because the circuit breaker is open or the service asked for a pause.", "endpoint")
	c.limit = f.gauges("call_timeout_seconds", "Timeout of the next call of a service.", "endpoint")
	c.failing = f.gauges("calls_failing_since_timestamp_seconds", "Time since which every call of a service has failed, for any reason; 0 if the last call succeeded.", "endpoint")
	c.payments = f.counters("payment_answers_total", "Orders that the payment provider was asked about before their close, by its answer.", "answer")
}

// Breaker implements the Metrics of packages httpclose and payment.
func (c *calls) Breaker(endpoint, state string) {
	c.breaker.WithLabelValues(endpoint).Set(breakerValues[state])
}

// Called implements the Metrics of packages httpclose and payment.
func (c *calls) Called(endpoint, result string, took time.Duration) {
	if result == httpcall.ResultRefused {
		c.refused.WithLabelValues(endpoint).Inc()
		return
	}
	c.seconds.WithLabelValues(endpoint, result).Observe(took.Seconds())
}

// CallLimit implements the Metrics of packages httpclose and payment.
func (c *calls) CallLimit(endpoint string, limit time.Duration) {
	c.limit.WithLabelValues(endpoint).Set(limit.Seconds())
}

// CallsFailing implements the Metrics of packages httpclose and payment.
func (c *calls) CallsFailing(endpoint string, since time.Time) {
	c.failing.WithLabelValues(endpoint).Set(timestamp(since))
}

// PaymentAnswers implements payment.Metrics.
func (c *calls) PaymentAnswers(a payment.Answer, orders int) {
	c.payments.WithLabelValues(string(a)).Add(float64(orders))
}
