// Package payments cancels the payments of orders at payment providers, for a closer that closes an
// order only after that (package closer/payment).
//
// Create a Provider with New. It needs the References of orders, which come from the shop's own data, and
// an API for each payment provider: packages payments/stripe, payments/paypal, payments/alipay and payments/wechatpay.
// In Go, give the Provider to payment.New or payment.Handler. For a shop in another language, cmd/orderclose-payments
// serves it over HTTP: docs/payments.md.
//
// A Provider looks up the references of all orders of a question, and then works on 8 orders at the
// same time. An order is Paid if one of its payments is. It is Cancelled if all of them have ended, or if it
// has none. An order is Unknown if a payment may still succeed, or if its API failed. An API
// that is unavailable is not called for a second, or for as long as it says.
package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
)

// Limits of a question. A closer waits for 3 s at most.
const (
	Concurrency   = 8                       // orders of one question, and payments of one order, that are worked on at the same time
	QuestionLimit = 2500 * time.Millisecond // orders without an answer by then are Unknown
	CallLimit     = 2 * time.Second         // of one call of a payment provider

	minPause = time.Second // for which an API that is unavailable is not called
	maxPause = time.Minute // the same, if the API says a longer time
)

// References returns the references of the payments that the shop has started for each order, such
// as the ids of Stripe's checkout sessions. An order that is missing has no payment: nothing
// can be paid, and the order may be closed. So References must read the shop's own data, and
// not a copy or an index that may lag. An empty reference is a payment that the shop has started and
// whose id it does not know yet: the order is Unknown. After an error no order has an answer. If it does not
// wrap orderclose.ErrUnavailable, the closer looks for the order at fault in smaller questions.
type References func(ctx context.Context, orderIDs []string) (map[string][]string, error)

// API is one payment provider. Its methods are called from several goroutines, and return soon
// after ctx ends.
//
// An *Unavailable error means that the provider does not work now. Any other error concerns this
// payment only. After each error the order is Unknown.
type API interface {
	// Name is the name of the provider in logs.
	Name() string
	// Owns reports whether a reference has the form of this provider's references.
	Owns(reference string) bool
	// Ask returns Paid, Unpaid or Unknown, and changes nothing.
	Ask(ctx context.Context, reference string) (payment.Answer, error)
	// Cancel ends a payment, and returns Cancelled, Paid or Unknown. For a payment that has ended before it
	// returns Cancelled again.
	Cancel(ctx context.Context, reference string) (payment.Answer, error)
}

// Unavailable is the error of an API that does not work now, or that refuses this program. It wraps
// orderclose.ErrUnavailable.
type Unavailable struct {
	After time.Duration // for how long the API wants no calls; 0: it did not say
	Err   error         // why
}

// Error returns the text of Err.
func (u *Unavailable) Error() string { return u.Err.Error() }

// Unwrap returns orderclose.ErrUnavailable and Err.
func (u *Unavailable) Unwrap() []error { return []error{orderclose.ErrUnavailable, u.Err} }

// RetryAfter returns After. A closer respects it, and payment.Handler sends it as Retry-After.
func (u *Unavailable) RetryAfter() time.Duration { return u.After }

// RetryLater returns the error of an API that has sent the headers h, and wants fewer calls or has failed.
func RetryLater(h http.Header, why error) *Unavailable {
	return &Unavailable{After: httpcall.RetryAfter(h.Get("Retry-After"), time.Now()), Err: why}
}

// TimeOf returns when a provider sent the headers h, by its own clock. Its pages expire by that clock. Zero: the provider does not say it.
func TimeOf(h http.Header) time.Time {
	at, _ := http.ParseTime(h.Get("Date"))
	return at
}

// Options configure a Provider. References and APIs are required.
type Options struct {
	References References
	APIs       []API
	Logger     *slog.Logger // default: warnings and errors, to slog.Default
}

// Provider is a payment.Canceler for the payments of one or several payment providers. It is safe for
// concurrent use. Create it with New.
type Provider struct {
	references References
	apis       []*pausable
	logger     *slog.Logger
}

// New returns a Provider, or an error if the options are invalid.
func New(o Options) (*Provider, error) {
	if o.References == nil || len(o.APIs) == 0 {
		return nil, errors.New("payments: Options need References and APIs")
	}
	p := &Provider{references: o.References, logger: retry.LimitLogs(o.Logger)}
	for _, api := range o.APIs {
		p.apis = append(p.apis, &pausable{API: api})
	}
	return p, nil
}

// Ask implements payment.Provider. It changes nothing.
func (p *Provider) Ask(ctx context.Context, orderIDs []string) ([]payment.Answer, error) {
	return p.each(ctx, orderIDs, API.Ask, payment.Unpaid)
}

// Cancel implements payment.Canceler.
func (p *Provider) Cancel(ctx context.Context, orderIDs []string) ([]payment.Answer, error) {
	return p.each(ctx, orderIDs, API.Cancel, payment.Cancelled)
}

// call is a method of an API.
type call = func(api API, ctx context.Context, reference string) (payment.Answer, error)

// each calls the APIs for all payments of the orders. The answer about an order is closes if that of all its payments is. If there is one API, and it
// fails before any order has an answer, each returns the error. Otherwise each returns the answers that it has. After an error the closer would ask
// about no order for a while, and then about the same orders first, so it might never reach the others. In both cases an order without an answer is
// pending for the closer, for 24 hours at most.
func (p *Provider) each(ctx context.Context, orderIDs []string, do call, closes payment.Answer) ([]payment.Answer, error) {
	limited, cancel := context.WithTimeout(ctx, QuestionLimit)
	defer cancel()
	references, err := p.references(limited, orderIDs)
	if err != nil {
		return nil, fmt.Errorf("read the shop's payments: %w", err)
	}
	answers, errs := make([]payment.Answer, len(orderIDs)), make([]error, len(orderIDs))
	q := question{p, do, make([]chan struct{}, len(p.apis))}
	for i := range p.apis {
		q.slots[i] = make(chan struct{}, Concurrency)
	}
	var g errgroup.Group
	for i, id := range orderIDs {
		g.Go(func() error {
			answers[i], errs[i] = q.order(limited, references[id], closes)
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var down *Unavailable
	answered := false
	for i, err := range errs {
		answered = answered || answers[i] != payment.Unknown
		if err != nil && !errors.As(err, &down) {
			p.logger.Warn("payment could not be read or cancelled", "order", orderIDs[i], "err", err, retry.Stack(err))
		}
	}
	if down != nil && !answered && len(p.apis) == 1 {
		return nil, down
	}
	if down != nil {
		p.logger.Warn("payment provider is unavailable, orders without an answer stay open", "err", down)
	}
	return answers, nil
}

// question is one call of Ask or Cancel.
type question struct {
	*Provider
	do    call
	slots []chan struct{} // by API, an element for each call that runs: an API without answers takes no place from another
}

// order calls the API for all payments of one order: also after a payment is Paid, so that
// the customer does not pay twice.
func (q question) order(ctx context.Context, references []string, closes payment.Answer) (payment.Answer, error) {
	answers, failed := make([]payment.Answer, len(references)), make([]error, len(references))
	var g errgroup.Group
	g.SetLimit(Concurrency) // the last payment of many has an answer too
	for i, reference := range references {
		g.Go(func() error {
			if answers[i], failed[i] = q.one(ctx, reference); failed[i] != nil {
				answers[i] = payment.Unknown
			}
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	answer := closes
	for _, got := range answers {
		switch {
		case got == payment.Paid || answer == payment.Paid:
			answer = payment.Paid
		case got != closes:
			answer = payment.Unknown
		}
	}
	return answer, errors.Join(failed...)
}

func (q question) one(ctx context.Context, reference string) (answer payment.Answer, err error) {
	if reference == "" {
		return payment.Unknown, nil
	}
	at := slices.IndexFunc(q.apis, func(api *pausable) bool { return api.Owns(reference) })
	if at < 0 {
		return payment.Unknown, fmt.Errorf("reference %.40q belongs to no payment provider of this service: docs/payments.md has the forms of references", reference)
	}
	api := q.apis[at]
	select {
	case q.slots[at] <- struct{}{}:
		defer func() { <-q.slots[at] }()
	case <-ctx.Done():
	}
	if err := api.paused(); err != nil {
		return payment.Unknown, err
	}
	began := time.Now()
	if ctx.Err() == nil {
		err = retry.Catch(func() (err error) {
			answer, err = q.do(api.API, ctx, reference)
			return err
		})
	}
	var down *Unavailable
	took := time.Since(began)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && (err != nil || answer == "") && took >= QuestionLimit/2:
		return payment.Unknown, api.hangs(took)
	case ctx.Err() != nil && (err != nil || answer == ""): // the question took too long, which is not the API's fault alone
		return payment.Unknown, &Unavailable{Err: fmt.Errorf("%s: no time was left in a question of %v: lower closer.payment.batch", api.Name(), QuestionLimit)}
	case errors.As(err, &down):
		return payment.Unknown, api.pause(down)
	case err != nil:
		return payment.Unknown, fmt.Errorf("%s: payment %.80s: %w", api.Name(), reference, err)
	}
	api.answered()
	return answer, nil
}

// pausable is an API that is not called for a while after it was unavailable.
type pausable struct {
	API
	mu    sync.Mutex
	until time.Time
	why   error
	hung  int // pauses since the last answer, because calls had none
}

// hangs pauses the API after a call that had no answer, for twice as long as the time before, and returns the error to report.
func (a *pausable) hangs(took time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	after := minPause
	if time.Now().After(a.until) { // else another call has paused it
		after = min(minPause<<min(a.hung, 6), maxPause)
		a.hung++
	}
	return a.pauseFor(after, fmt.Errorf("no answer within %v", took.Round(time.Second/10)))
}

// answered notes that the API has answered.
func (a *pausable) answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hung = 0
}

// paused returns an error while the API is not to be called.
func (a *pausable) paused() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := time.Until(a.until); left > 0 {
		return &Unavailable{After: left, Err: a.why}
	}
	return nil
}

// pause notes that the API is unavailable, and returns the error to report.
func (a *pausable) pause(u *Unavailable) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pauseFor(min(max(u.After, minPause), maxPause), u.Err)
}

// pauseFor sets the end of the pause. The caller has mu.
func (a *pausable) pauseFor(after time.Duration, why error) error {
	a.why = fmt.Errorf("%s: %w", a.Name(), why)
	if until := time.Now().Add(after); until.After(a.until) {
		a.until = until
	}
	return &Unavailable{After: after, Err: a.why}
}
