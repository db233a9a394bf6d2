package closer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/partition"
)

// runTransaction closes orders. With an error, some orders or all have no verdict, and outcomes
// may be empty. The context ends when no job waits for the transaction any longer.
type runTransaction func(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)

// transactions closes the orders of each transaction through the store, finds the orders on which
// the store fails, and counts the outcomes. It also passes the duration and the failures of the
// store's calls to the batcher's limiter.
type transactions struct {
	store    Store
	culprits bisect.Culprits
	metrics  *closerMetrics
	batcher  *batcher
	pauses   *pauseLog
}

func newTransactions(s Store, m *closerMetrics, b *batcher, p *pauseLog, logger *slog.Logger) *transactions {
	return &transactions{measuredStore{bisect.Wrapped{Store: s}, b}, bisect.Culprits{Proof: bisect.ProofPipeline, Logger: logger}, m, b, p}
}

// run closes the orders of one transaction.
func (t *transactions) run(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	began := time.Now()
	outcomes, err := t.culprits.Close(ctx, t.store, orderclose.PathPipeline, requests)
	switch {
	case err == nil:
		t.metrics.Batch(time.Since(began))
		t.pauses.ended(allOrders, began)
	case errors.Is(err, orderclose.ErrPaused):
		_, pause, _ := strings.Cut(err.Error(), orderclose.ErrPaused.Error()+" ")
		t.pauses.noted(allOrders, pause)
	case errors.Is(err, bisect.ErrNoVerdicts):
		t.batcher.updateLimit(func(l *limiter, _ int) { l.failed(time.Now()) })
	}
	for i, o := range outcomes {
		if o.Verdict == "" {
			continue
		}
		t.metrics.Verdict(o.Verdict)
		if o.Verdict == orderclose.Closed {
			t.metrics.Lateness(requests[i].Category, -o.Remaining())
		}
	}
	return outcomes, err
}

// measuredStore is a Store whose call durations feed the limiter.
type measuredStore struct {
	bisect.Wrapped
	batcher *batcher
}

// CloseOrders implements Store. The limiter ignores a batch that failed, in which an order was
// contended, or for which the store broke its contract: its duration says nothing about the load
// of the store.
func (s measuredStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	began := time.Now()
	if pulse, ok := ctx.Value(pulseKey{}).(*partition.Pulse); ok {
		defer pulse.Beat() // after a panic, too
	}
	outcomes, err := s.Store.CloseOrders(ctx, path, requests)
	if err == nil {
		err = bisect.CheckOutcomes(requests, outcomes)
	}
	if err == nil && !slices.ContainsFunc(outcomes, func(o orderclose.Outcome) bool { return o.Verdict == orderclose.Contended }) {
		s.batcher.updateLimit(func(l *limiter, inFlight int) { l.observe(sample{len(requests), inFlight, began, time.Since(began)}) })
	}
	return outcomes, err
}

// pulseKey is the context key of a transaction's pulse.
type pulseKey struct{}

// withPulse returns a context with the pulse that beats after each call of the store.
func withPulse(ctx context.Context, p *partition.Pulse) context.Context {
	return context.WithValue(ctx, pulseKey{}, p)
}
