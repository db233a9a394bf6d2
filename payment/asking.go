package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"orderclose"
	"orderclose/internal/patience"
)

// Defaults of Options.
const (
	DefaultBatch       = 100
	DefaultConcurrency = 4
)

// Endpoint is the name of the provider in metrics and errors.
const Endpoint = "payment"

// Store is the database of orders. Its errors are those of a closer's Store.
type Store interface {
	// CloseOrders closes what is unpaid and due; see package closer.
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
	// PreviewClose tells what CloseOrders would say now, and changes nothing.
	PreviewClose(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
	// PayOrders marks paid what is unpaid, whether due or not, and tells what became
	// of each: AlreadyPaid if it is paid now.
	PayOrders(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Metrics takes what there is to count; internal/obs has one for Prometheus. Its
// methods are called from many goroutines and must not block.
type Metrics interface {
	// Breaker says which state the provider's breaker is in: closed, half_open or
	// open.
	Breaker(endpoint, state string)
	// Called says how long a question took: result is ok, failed, timeout, or refused
	// if the breaker was open.
	Called(endpoint, result string, took time.Duration)
	// CallLimit is when the next question will time out.
	CallLimit(endpoint string, limit time.Duration)
	// PaymentAnswers counts orders by what the provider said of them.
	PaymentAnswers(a Answer, orders int)
}

// Options for an Asking. Store and Provider must be set.
type Options struct {
	Store       Store
	Provider    Provider
	Batch       int          // orders per question at most; default DefaultBatch
	Concurrency int          // questions at once; default DefaultConcurrency
	Logger      *slog.Logger // default: discard
	Metrics     Metrics      // default: none
}

// Asking closes orders after asking the provider. It may be used from any
// goroutine. Make it with New.
type Asking struct {
	o        Options
	endpoint *patience.Endpoint
	places   chan struct{} // one for each question under way
}

// New returns an Asking, or says what is wrong with the options.
func New(o Options) (*Asking, error) {
	if o.Store == nil || o.Provider == nil {
		return nil, errors.New("payment: Options need Store and Provider")
	}
	if o.Batch < 0 || o.Concurrency < 0 {
		return nil, fmt.Errorf("payment: Batch is %d and Concurrency %d, both must be positive", o.Batch, o.Concurrency)
	}
	if o.Batch == 0 {
		o.Batch = DefaultBatch
	}
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	return &Asking{o: o, endpoint: patience.New(Endpoint, o.Metrics), places: make(chan struct{}, o.Concurrency)}, nil
}

// CloseOrders closes what is unpaid and due, and not paid by the provider's word.
// It answers every request, in their order; what the provider cannot say is
// PaymentPending and unchanged. Nothing is closed that the provider was not asked
// about in this very call.
//
// The error is the store's: orderclose.ErrUnavailable, or the fault of an order.
// The provider's are none: they make orders PaymentPending.
func (a *Asking) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes, err := a.o.Store.PreviewClose(ctx, requests)
	if err == nil && len(outcomes) != len(requests) {
		err = fmt.Errorf("the store gave %d outcomes for %d orders", len(outcomes), len(requests))
	}
	if err != nil {
		return nil, err
	}
	answers := a.ask(ctx, openIDs(outcomes))
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("asking the payment provider: %w", err)
	}
	p := plan(outcomes, answers)
	for _, i := range p.pending {
		outcomes[i].Verdict = orderclose.PaymentPending
	}
	if err := follow(outcomes, requests, p.paid, func(part []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return a.o.Store.PayOrders(ctx, part)
	}); err != nil {
		return nil, err
	}
	err = follow(outcomes, requests, p.unpaid, func(part []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return a.o.Store.CloseOrders(ctx, path, part)
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// Probe implements the closer's question whether the store works at all, for a Store
// that can tell.
func (a *Asking) Probe(ctx context.Context) error {
	if p, ok := a.o.Store.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return nil
}

// openIDs are the orders that would be closed, each once.
func openIDs(outcomes []orderclose.Outcome) []string {
	var ids []string
	for _, o := range outcomes {
		if o.Verdict == orderclose.Closed {
			ids = append(ids, o.OrderID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// planned are the places of outcomes by what is to be done with their orders.
type planned struct{ paid, unpaid, pending []int }

// plan says what to do with the orders that would be closed. One without an
// answer is pending.
func plan(outcomes []orderclose.Outcome, answers map[string]Answer) planned {
	var p planned
	for i, o := range outcomes {
		if o.Verdict != orderclose.Closed {
			continue
		}
		switch answers[o.OrderID] {
		case Paid:
			p.paid = append(p.paid, i)
		case Unpaid:
			p.unpaid = append(p.unpaid, i)
		default:
			p.pending = append(p.pending, i)
		}
	}
	return p
}

// follow has something done with the requests at some places, and puts the
// outcomes there.
func follow(outcomes []orderclose.Outcome, requests []orderclose.CloseRequest, places []int, do func([]orderclose.CloseRequest) ([]orderclose.Outcome, error)) error {
	if len(places) == 0 {
		return nil
	}
	part := make([]orderclose.CloseRequest, len(places))
	for i, at := range places {
		part[i] = requests[at]
	}
	done, err := do(part)
	if err == nil && len(done) != len(part) {
		err = fmt.Errorf("the store gave %d outcomes for %d orders", len(done), len(part))
	}
	if err != nil {
		return err
	}
	for i, at := range places {
		outcomes[at] = done[i]
	}
	return nil
}

// ask asks for orders, a batch at a time, several batches at once. What was not
// answered is not in the result.
func (a *Asking) ask(ctx context.Context, ids []string) map[string]Answer {
	parts := slices.Collect(slices.Chunk(ids, a.o.Batch))
	said := make([][]Answer, len(parts))
	var questions errgroup.Group
	questions.SetLimit(a.o.Concurrency)
	for i, part := range parts {
		questions.Go(func() error {
			said[i] = a.askOne(ctx, part)
			return nil
		})
	}
	_ = questions.Wait() // never an error
	answers := make(map[string]Answer, len(ids))
	for i, part := range parts {
		for j, id := range part {
			if said[i] != nil {
				answers[id] = said[i][j]
			}
		}
	}
	return answers
}

// askOne asks one question; nil: there is no answer.
func (a *Asking) askOne(ctx context.Context, ids []string) []Answer {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	case <-ctx.Done():
		return nil
	}
	var said []Answer
	err := a.endpoint.Do(ctx, func(ctx context.Context) (err error) {
		said, err = a.o.Provider.Ask(ctx, ids)
		return err
	})
	if err == nil && len(said) != len(ids) {
		err = fmt.Errorf("it gave %d answers for %d orders", len(said), len(ids))
	}
	if err != nil {
		if ctx.Err() == nil {
			a.o.Logger.Warn("the payment provider does not say whether orders are paid; they stay as they are", "orders", len(ids), "first", ids[0], "err", err)
			a.o.Metrics.PaymentAnswers(Unknown, len(ids))
		}
		return nil
	}
	counts := map[Answer]int{}
	for i, answer := range said {
		if answer != Paid && answer != Unpaid {
			said[i] = Unknown
		}
		counts[said[i]]++
	}
	for answer, n := range counts {
		a.o.Metrics.PaymentAnswers(answer, n)
	}
	return said
}

// noMetrics counts nothing.
type noMetrics struct{ patience.NoMetrics }

func (noMetrics) PaymentAnswers(Answer, int) {}
