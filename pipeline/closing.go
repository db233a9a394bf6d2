package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/metrics"
)

// closeMethod is the configured method of closing orders. Closer and compensator share one, so
// that they share what is known about the service behind it.
type closeMethod struct {
	store    closer.Store
	needs    []need
	maxBatch int              // the largest useful batch; 0: the closer's default
	provider payment.Provider // is asked or cancels before a close; nil: none
}

// target returns the target time of a transaction, of which a request to a service may be a part. 0 is the closer's default.
func (c closeMethod) target(configured time.Duration) time.Duration {
	if configured == 0 && (c.maxBatch > 0 || c.provider != nil) { //mutant:service-has-no-time
		return closer.ServiceTargetLatency
	}
	return configured
}

// category returns the label value for an order's category in the metric of lateness: the category
// if topics.yaml lists it now. Only that file decides how many series there are.
func (a *App) category(name string) string {
	if _, listed := a.config().Delays.ByCategory[name]; listed {
		return name
	}
	return metrics.OtherCategories
}

func (a *App) buildCloseMethod() (method closeMethod, err error) {
	c := a.o.Config.Closer
	switch {
	case a.o.Store != nil:
		method.store, err = a.o.Store, a.checkSync()
	case c.Kind == config.KindHTTP:
		method, err = a.httpMethod(c.HTTP)
	case a.conns.Store == nil:
		err = errNoDatabase
	default:
		method = closeMethod{store: a.conns.Store, needs: []need{a.needDatabase(), a.needOrders()}}
	}
	if err == nil && (a.o.Payment != nil || c.AsksPayment()) {
		method, err = a.withPayment(method, c.Payment)
	}
	if err != nil {
		return method, err
	}
	method = a.withPauses(method)
	w := &watchedStore{Wrapped: bisect.Wrapped{Store: method.store}}
	a.ready.waiting.addFunc("closes", func() string { return whyFailing(w) })
	method.store = w
	return method, nil
}

// checkSync returns an error if a loss of power takes records for good: the close topic is not on disk, and the own Store cannot be searched.
func (a *App) checkSync() error {
	c := a.o.Config
	if a.searched() || a.conns.Kafka == nil || c.Replication > 1 || c.FlushMessages(c.Topics.Close) == 1 { //mutant:lost-for-good
		return nil
	}
	return fmt.Errorf("a loss of power would take records of topic %s for good: it is the only copy and not synced, and Options.Store, a %T, "+
		"has no method Overdue: set sync: always in %s and run orderclose topics apply, or give the Store the methods Now and Overdue",
		c.Topics.Close, a.o.Store, cmp.Or(a.o.TopicsFile, "topics.yaml"))
}

// httpMethod returns the method that closes orders through a service. It needs no check of the service at the start, because calls are retried.
func (a *App) httpMethod(c config.Service) (closeMethod, error) {
	s, err := httpclose.New(httpclose.Options{
		URL: c.URL, Secrets: a.o.Secrets.HTTP, Batch: c.Batch, Transport: a.o.Services,
		Logger: a.o.Logger.With("service", c.URL), Metrics: a.metrics,
	})
	if err != nil {
		return closeMethod{}, fmt.Errorf("%w: see closer.http.url and %s (Options.Secrets.HTTP)", err, environ.EnvHTTPSecret)
	}
	a.closers = append(a.closers, s)
	return closeMethod{store: s, maxBatch: c.Batch}, nil
}

// withPayment returns the method with a payment provider that is asked before each close.
func (a *App) withPayment(method closeMethod, c config.PaymentService) (closeMethod, error) {
	closes, ok := method.store.(payment.Store)
	if !ok {
		return closeMethod{}, fmt.Errorf("a payment provider is set, but %T is not a payment.Store: it needs the methods PreviewClose and PayOrders", method.store)
	}
	provider, logger := a.o.Payment, a.o.Logger
	if provider == nil {
		service, err := payment.NewHTTP(payment.HTTPOptions{URL: c.URL, Secrets: a.o.Secrets.Payment, Transport: a.o.Services})
		if err != nil {
			return closeMethod{}, fmt.Errorf("%w: see closer.payment.url and %s (Options.Secrets.Payment)", err, environ.EnvPaymentSecret)
		}
		a.closers = append(a.closers, service)
		provider, logger = service, logger.With("service", c.URL)
		if c.Cancel {
			provider = service.Canceler()
		}
	}
	if _, ok := provider.(payment.Canceler); c.Cancel && !ok {
		return closeMethod{}, fmt.Errorf("closer.payment.cancel is true, but Options.Payment, a %T, is no payment.Canceler: give it the method Cancel", provider)
	}
	checked, err := payment.New(payment.Options{Store: closes, Provider: provider, Batch: c.Batch, Logger: logger, Metrics: a.metrics})
	if err != nil {
		return closeMethod{}, err
	}
	a.ready.hints.addFunc("payment provider", func() string { return whyFailing(checked) })
	method.store, method.provider = checked, provider
	return method, nil
}

// failingFor is how long all calls of a service must have failed before /-/ready reports
// it. If the service answers 500 for a single order only, the order is found in less time.
const failingFor = 30 * time.Second

// failing is a service that knows since when all calls of it fail, and why; the zero time: some succeed.
type failing interface {
	Failing() (since time.Time, cause string)
}

// whyFailing returns why all calls of a service fail, for /-/ready, or "" if some succeed.
func whyFailing(s failing) string {
	since, cause := s.Failing()
	return failsSince(since, "every call has failed", cause)
}

// failsSince returns the text of /-/ready about what has failed for failingFor; "" if it has not.
func failsSince(since time.Time, what, cause string) string {
	if since.IsZero() || time.Since(since) < failingFor {
		return ""
	}
	return fmt.Sprintf("%s since %s, the last error is: %s", what, since.UTC().Format(time.RFC3339), strings.Join(strings.Fields(cause), " "))
}

const (
	// failingOrders is how many orders the calls that failed must have had: a call with one bad order says nothing about the others.
	failingOrders = 3
	// failingForgotten is how long after the last call it is not known any more whether calls fail.
	failingForgotten = 20 * time.Minute
)

// watchedStore notes since when all closes of a Store fail. It is safe for concurrent use.
type watchedStore struct {
	bisect.Wrapped
	mu     sync.Mutex
	orders map[string]bool // some orders of the calls that have failed since the last one that did not
	since  time.Time       // the first of these calls
	last   time.Time
	cause  string
}

// CloseOrders implements closer.Store.
func (w *watchedStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	began := time.Now()
	outcomes, err := w.Store.CloseOrders(ctx, path, requests)
	if errors.Is(ctx.Err(), context.Canceled) { // the search or the process has ended
		return outcomes, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || errors.Is(err, orderclose.ErrPaused) || time.Since(w.last) > failingForgotten {
		w.orders, w.since = map[string]bool{}, time.Time{}
	}
	w.last = time.Now()
	if err == nil || errors.Is(err, orderclose.ErrPaused) {
		return outcomes, err
	}
	w.cause = err.Error()
	if w.since.IsZero() {
		w.since = began
	}
	for _, r := range requests[:min(len(requests), failingOrders)] {
		if len(w.orders) < failingOrders {
			w.orders[r.OrderID] = true
		}
	}
	return outcomes, err
}

// Failing implements failing.
func (w *watchedStore) Failing() (since time.Time, cause string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.orders) < failingOrders || time.Since(w.last) > failingForgotten {
		return time.Time{}, ""
	}
	return w.since, w.cause
}

// sweepSource finds the orders that a sweep closes. The database does, and so may a store of the program's own.
type sweepSource interface {
	Now(ctx context.Context) (time.Time, error)
	Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
}

// searched reports whether a compensator finds the orders that closers close. A database beside another Store may not have them, and one beside a
// service has them if topics.yaml maps them.
func (a *App) searched() bool {
	_, own := a.o.Store.(sweepSource)
	return own || a.closesInDatabase() || a.o.Store == nil && a.conns.Store != nil && a.o.Config.Orders != nil
}

func (a *App) sweepSource() (sweepSource, error) {
	if own, ok := a.o.Store.(sweepSource); ok {
		return own, nil
	}
	if a.conns.Store == nil {
		return nil, fmt.Errorf("%w: a sweep searches the database for overdue orders, also if a service closes them", errNoDatabase)
	}
	if a.conns.Store.OwnStore() {
		return nil, fmt.Errorf("a sweep finds no order: Options.Store, a %T, lacks the methods Now and Overdue, and topics.yaml does not say "+
			"in which table the orders are (key orders)", a.o.Store)
	}
	return a.conns.Store, nil
}

// sweepStore is the store of the compensator: the source finds orders, and the configured method
// closes them. The source is the database, and a service may do the closing.
type sweepStore struct {
	sweepSource
	bisect.Wrapped
}
