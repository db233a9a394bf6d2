package closer

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
)

// closerMetrics are the metrics of a Closer.
type closerMetrics struct {
	*partition.Metrics
	metrics.Closes
	copies           metrics.Closes // of records that a person has sent again; also the lateness of retries: both are late from the start
	batch            prometheus.Histogram
	concurrencyLimit prometheus.Gauge
	retries          *prometheus.CounterVec // contended and no_verdict: memory had no room for them
	pendingBegan     prometheus.Counter
	pendingEnded     prometheus.Counter
	dueDiffers       *prometheus.CounterVec
}

// newMetrics registers the metrics. category is Options.Category.
func newMetrics(r prometheus.Registerer, category func(string) string) (*closerMetrics, error) {
	f := metrics.With(r)
	m := &closerMetrics{
		Metrics:          partition.NewMetrics(f, Stage, causeFailed, causeNotFound, causeUnresolved),
		Closes:           metrics.NewCloses(f, orderclose.PathPipeline, category),
		copies:           metrics.NewCloses(f, "replay", category),
		batch:            f.Histogram("close_batch_seconds", "How long closing one batch took.", prometheus.ExponentialBuckets(.001, 2, 14)),
		concurrencyLimit: f.Gauge("close_concurrency_limit_orders", "Limit of orders in transactions at once; smaller while the database is slow."),
		retries:          f.CounterVec("retry_total", "Orders that could not be closed and will be retried, by cause.", "cause"),
		pendingBegan:     f.Counter("payment_pending_began_total", "Orders that started to wait for an answer of the payment provider."),
		pendingEnded: f.Counter("payment_pending_ended_total",
			"Orders that stopped waiting for the payment provider. The difference, over all closers, is the number that waits."),
		dueDiffers: f.CounterVec("close_due_differs_total", "Orders whose due time in the database (row) is whole quarter-hours later "+
			"or earlier than in the record, up to 14 hours: a mistake of time zones, or later: the due time was moved by such a time. "+
			"The two cannot be told apart.", "row"),
	}
	for _, row := range []string{"later", "earlier"} {
		m.dueDiffers.WithLabelValues(row)
	}
	for _, cause := range []string{causeFailed, causeNotFound, causePending, causeContended, causeNoVerdict} {
		m.retries.WithLabelValues(cause) // a series must exist at 0, or its first increase is not seen
	}
	return m, f.Err()
}

// withoutPanics returns category with OtherCategories in place of a panic; nil stays nil.
func withoutPanics(category func(string) string, logger *slog.Logger) func(string) string {
	if category == nil {
		return nil
	}
	return func(name string) (label string) {
		err := retry.Catch(func() error { label = category(name); return nil })
		if err != nil {
			logger.Error("Options.Category panicked", "category", name, "err", err, retry.Stack(err))
			label = metrics.OtherCategories
		}
		return label
	}
}
