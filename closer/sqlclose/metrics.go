package sqlclose

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
)

// refusals are the results of payments that RecordPayment refuses each time, until a person acts.
var refusals = []struct {
	err    error
	result string
}{{ErrNoOrder, "no_order"}, {ErrUnnamedStatus, "unnamed_status"}, {ErrBadPayment, "bad_payment"}}

// newCallbacks returns the metric of RecordPayment.
func newCallbacks(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	f := metrics.With(r)
	callbacks := f.CounterVec("payment_callbacks_total", "Calls of RecordPayment by result. "+
		"no_order, unnamed_status and bad_payment are refused each time that the provider calls again.", "result")
	for _, r := range []Recorded{Paid, AlreadyPaid, PaidLate} {
		callbacks.WithLabelValues(string(r))
	}
	for _, r := range refusals {
		callbacks.WithLabelValues(r.result) // a series must exist at 0, or its first increase is not seen
	}
	return callbacks, f.Err()
}

// callbackResult is the result of a call of RecordPayment in the metric.
func callbackResult(r Recorded, err error) string {
	for _, refusal := range refusals {
		if errors.Is(err, refusal.err) {
			return refusal.result
		}
	}
	switch {
	case errors.Is(err, orderclose.ErrContended):
		return "contended"
	case errors.Is(err, orderclose.ErrUnavailable):
		return "unavailable"
	case err != nil:
		return "error"
	}
	return string(r)
}
