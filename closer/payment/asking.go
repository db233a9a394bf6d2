package payment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
)

// Defaults of Options.
const (
	DefaultBatch       = 100
	DefaultConcurrency = 4
)

// Endpoint is the name of the payment provider in metrics and errors.
const Endpoint = "payment"

// Store is the database of orders. Its errors are those of a closer's Store.
type Store interface {
	// CloseOrders closes the orders that are unpaid and due; see package closer.
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
	// PreviewClose returns the outcomes that CloseOrders would have now by the path, and
	// changes nothing. The error wraps orderclose.ErrPaused while closing is paused.
	PreviewClose(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
	// PayOrders marks unpaid orders as paid, whether they are due or not. The verdict
	// is AlreadyPaid for each order that is paid now. The verdict is AlreadyClosed for an order that was
	// closed since the preview: its payment succeeded nevertheless, and PayOrders must record that money.
	PayOrders(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Metrics receives the counts of calls and answers. Package pipeline implements it for
// Prometheus. Its methods are called from many goroutines and must not block.
type Metrics interface {
	httpclose.Metrics
	// PaymentAnswers counts orders by the provider's answer.
	PaymentAnswers(a Answer, orders int)
}

// Options configure a CheckedStore. Store and Provider are required.
type Options struct {
	Store       Store
	Provider    Provider     // a Canceler cancels payments instead of being asked
	Batch       int          // maximum of orders per question; default DefaultBatch
	Concurrency int          // maximum of questions in flight; default DefaultConcurrency
	Logger      *slog.Logger // default: warnings and errors, to slog.Default
	Metrics     Metrics      // default: none
}

// askedWithin is the age up to which an answer describes the provider. A compensator asks about a waiting order each five minutes.
const askedWithin = 10 * time.Minute

// span is the time between two questions.
type span struct{ first, last time.Time }

// CheckedStore closes orders after it has asked the provider about them, or after the provider has
// cancelled their payments. It is safe for concurrent use. Create it with New.
type CheckedStore struct {
	o        Options
	call     func(ctx context.Context, ids []string) ([]Answer, error) // Cancel of a Canceler, otherwise Ask
	closes   Answer                                                    // the answer after which an order is closed: Cancelled or Unpaid
	endpoint *httpcall.Endpoint
	unknown  atomic.Pointer[span] // the last questions, if all their answers were Unknown; nil: the last question had another answer
	slots    chan struct{}        // one element for each question in flight
	search   bisect.Search        // finds the orders for which the provider gives no answer
}

// New returns a CheckedStore, or an error if the options are invalid.
func New(o Options) (*CheckedStore, error) {
	if o.Store == nil || o.Provider == nil {
		return nil, errors.New("payment: Options need Store and Provider")
	}
	if o.Batch < 0 || o.Concurrency < 0 {
		return nil, fmt.Errorf("payment: Batch is %d and Concurrency %d, neither may be negative", o.Batch, o.Concurrency)
	}
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.Logger = retry.LimitLogs(o.Logger)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	a := &CheckedStore{
		o: o, call: o.Provider.Ask, closes: Unpaid,
		endpoint: httpcall.NewEndpoint(Endpoint, o.Metrics), slots: make(chan struct{}, o.Concurrency),
		search: bisect.Search{Lenient: true},
	}
	if c, ok := o.Provider.(Canceler); ok {
		a.call, a.closes = c.Cancel, Cancelled
	}
	return a, nil
}

// CloseOrders closes the orders that are unpaid and due and that the provider called
// Unpaid in this call, or Cancelled if it is a Canceler. It marks orders that the provider called Paid as paid. An order
// that is Unknown, or that the provider gives no answer on, is PaymentPending and not
// changed. CloseOrders returns one outcome for each request, in the order of the
// requests. If the provider does not answer a question about several orders, they are
// asked for again in smaller questions (internal/bisect).
//
// The error is the store's: orderclose.ErrUnavailable, or the fault of an order. The
// provider's errors are not returned; they make orders PaymentPending.
func (a *CheckedStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes, err := a.o.Store.PreviewClose(ctx, path, requests)
	if err == nil {
		err = bisect.CheckOutcomes(requests, outcomes)
	}
	if err != nil {
		return nil, err
	}
	var open []orderclose.CloseRequest
	var at []int // their indexes
	for i, o := range outcomes {
		if o.Verdict == orderclose.Closed { //mutant:cancel-before-due
			outcomes[i].Verdict = orderclose.PaymentPending
			open, at = append(open, requests[i]), append(at, i)
		}
	}
	q := &inquiry{checked: a, began: time.Now(), outcomes: map[string][]orderclose.Outcome{}} //mutant:close-before-cancel
	_, _ = a.search.Close(bisect.Fresh(ctx), q, path, open)                                   // q has all that it returns
	if q.storeErr != nil {
		return nil, q.storeErr
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask the payment provider: %w", err)
	}
	var unanswered []string
	for n, o := range q.of(open) {
		switch o.Verdict {
		case "":
			unanswered = append(unanswered, o.OrderID)
		case orderclose.PaymentPending: // the outcome of the preview also has the times
		default:
			outcomes[at[n]] = o
		}
	}
	slices.Sort(unanswered)
	if n := len(slices.Compact(unanswered)); n > 0 {
		a.o.Logger.Warn("payment provider gave no answer, orders stay pending", "orders", n, "first", unanswered[0], "err", q.lastErr, retry.Stack(q.lastErr))
		a.o.Metrics.PaymentAnswers(Unknown, n)
	}
	return outcomes, nil
}

// Probe checks whether the store works, if the Store can check: see closer.Store.
func (a *CheckedStore) Probe(ctx context.Context) error { return bisect.Probe(ctx, a.o.Store) }

// LimitsItself says that a question to the provider has a time limit of its own.
func (*CheckedStore) LimitsItself() bool { return true }

// MaxBatch returns how many orders the store accepts in one call now: see closer.Store.
func (a *CheckedStore) MaxBatch() int { return bisect.MaxBatch(a.o.Store) }

// Failing returns since when no question was answered, or each answer was Unknown, and why the last one was not.
// The zero time means that the last question was answered, or that there was none.
func (a *CheckedStore) Failing() (since time.Time, cause string) {
	since, cause = a.endpoint.Failing()
	if u := a.unknown.Load(); since.IsZero() && u != nil && time.Since(u.last) < askedWithin {
		return u.first, "the answer unknown"
	}
	return since, cause
}

// ask asks one question. It returns an answer for each id.
func (a *CheckedStore) ask(ctx context.Context, ids []string) ([]Answer, error) {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.closes == Cancelled { // the usual limit follows the many orders without a payment; a call of the provider takes longer
		ctx = bisect.Alone(ctx)
	}
	var got []Answer
	err := a.endpoint.Do(ctx, func(ctx context.Context) error {
		return retry.Catch(func() (err error) {
			got, err = a.call(ctx, ids)
			return err
		})
	})
	if err == nil && len(got) != len(ids) {
		err = fmt.Errorf("the provider returned %d answers for %d orders", len(got), len(ids))
	}
	if err != nil {
		return nil, err
	}
	if at := slices.Index(got, Unpaid); at >= 0 && a.closes == Cancelled {
		a.o.Logger.Warn("payment provider answered unpaid to a cancel, so the payment may still succeed, and orders stay pending: "+
			"implement the action cancel (docs/http.md), or remove closer.payment.cancel", "first", ids[at])
	}
	counts := map[Answer]int{}
	for i, answer := range got {
		if answer != Paid && answer != a.closes { //mutant:unpaid-answer-closes
			got[i] = Unknown
		}
		counts[got[i]]++
	}
	if now := time.Now(); counts[Unknown] < len(got) {
		a.unknown.Store(nil)
	} else if u := a.unknown.Load(); u != nil {
		a.unknown.Store(&span{u.first, now})
	} else {
		a.unknown.Store(&span{now, now})
	}
	for answer, n := range counts {
		a.o.Metrics.PaymentAnswers(answer, n)
	}
	return got, nil
}

// noMetrics discards all counts.
type noMetrics struct{ httpcall.NoMetrics }

func (noMetrics) PaymentAnswers(Answer, int)  {}
func (noMetrics) Rechecked(string, int)       {}
func (noMetrics) RecheckBehind(time.Duration) {}
