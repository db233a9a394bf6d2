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
	"orderclose/internal/closing"
	"orderclose/internal/loglimit"
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
	// CallsFailing says since when no call has succeeded, whatever the answers were. The
	// zero time: the last one did.
	CallsFailing(endpoint string, since time.Time)
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
	places   chan struct{}    // one for each question under way
	suspects closing.Suspects // orders for which the provider gave no answer alone
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
	o.Logger = loglimit.New(o.Logger)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	return &Asking{o: o, endpoint: patience.New(Endpoint, o.Metrics), places: make(chan struct{}, o.Concurrency)}, nil
}

// CloseOrders closes what is unpaid and due, and not paid by the provider's word.
// It answers every request, in their order; what the provider cannot say is
// PaymentPending and unchanged. Nothing is closed that the provider was not asked
// about in this very call. If the provider gives no answer for many orders together,
// they are asked for again in smaller questions (search.go).
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
	b := newBatch(a, path, requests, outcomes)
	if err := b.askForAll(ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("asking the payment provider: %w", err)
	}
	b.tellUnanswered()
	return outcomes, nil
}

// Probe implements the closer's question whether the store works at all, for a Store
// that can tell.
func (a *Asking) Probe(ctx context.Context) error {
	if p, ok := a.o.Store.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return errors.ErrUnsupported
}

// Failing says since when no question was answered, and why the last one was not. The
// zero time: the last one was, or there was none.
func (a *Asking) Failing() (since time.Time, cause string) { return a.endpoint.Failing() }

// failedQuestion is some orders that are asked for together, and why there was no answer.
type failedQuestion struct {
	ids []string
	err error
}

// ask asks for orders, a batch at a time, several batches at once. It returns the
// answers, and the questions that were not answered.
func (a *Asking) ask(ctx context.Context, ids []string) (answers map[string]Answer, unanswered []failedQuestion) {
	parts := slices.Collect(slices.Chunk(ids, a.o.Batch))
	said := make([][]Answer, len(parts))
	failures := make([]error, len(parts))
	var questions errgroup.Group
	questions.SetLimit(a.o.Concurrency)
	for i, part := range parts {
		questions.Go(func() error {
			said[i], failures[i] = a.askOne(ctx, part)
			return nil
		})
	}
	_ = questions.Wait() // never an error
	answers = make(map[string]Answer, len(ids))
	for i, part := range parts {
		if failures[i] != nil {
			unanswered = append(unanswered, failedQuestion{part, failures[i]})
			continue
		}
		for j, id := range part {
			answers[id] = said[i][j]
		}
	}
	return answers, unanswered
}

// askOne asks one question.
func (a *Asking) askOne(ctx context.Context, ids []string) ([]Answer, error) {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
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
		return nil, err
	}
	a.suspects.Heard(ids...)
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
	return said, nil
}

// noMetrics counts nothing.
type noMetrics struct{ patience.NoMetrics }

func (noMetrics) PaymentAnswers(Answer, int) {}
