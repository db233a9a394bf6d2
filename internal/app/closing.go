package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"orderclose"
	"orderclose/closer"
	"orderclose/httpclose"
	batches "orderclose/internal/closing"
	"orderclose/internal/config"
	"orderclose/internal/store"
	"orderclose/payment"
)

// closing is the way to close orders that is configured. Closer and compensator
// share one, and with it what is known of the service behind it.
type closing struct {
	store closer.Store
	needs []need
	most  int // orders that are best closed at a time; 0: any number
}

// batch is how many orders are to be closed at a time, if so many are wanted.
func (c closing) batch(want int) int {
	if c.most > 0 {
		return min(c.most, want)
	}
	return want
}

func (a *App) buildClosing() (closing, error) {
	c := a.o.Config.Closer
	if c.Kind == config.KindHTTP {
		return a.closingByHTTP(c.HTTP)
	}
	if a.o.Store == nil {
		return closing{}, fmt.Errorf("set %s", config.EnvDSN)
	}
	way := closing{store: a.o.Store, needs: []need{a.needDatabase()}}
	if c.Payment.URL == "" {
		return way, nil
	}
	return a.askingFirst(way, c.Payment)
}

// closingByHTTP needs no server to be there: a service that is away is asked again.
func (a *App) closingByHTTP(c config.HTTPClosing) (closing, error) {
	s, err := httpclose.New(httpclose.Options{
		URL: c.URL, Secrets: a.o.Secrets.HTTP, Batch: c.Batch, Transport: a.o.Services,
		Logger: a.o.Logger.With("service", c.URL), Metrics: a.metrics,
	})
	if err != nil {
		return closing{}, fmt.Errorf("%w: see closer.http.url and %s", err, config.EnvHTTPSecret)
	}
	a.closers = append(a.closers, s)
	a.ready.HintBy("the service that closes", func() string { return whyFailing(s) })
	return closing{store: s, most: c.Batch}, nil
}

// askingFirst puts the payment provider's question in front of the database.
func (a *App) askingFirst(way closing, c config.Payment) (closing, error) {
	provider, err := payment.NewHTTP(payment.HTTPOptions{URL: c.URL, Secrets: a.o.Secrets.Payment, Transport: a.o.Services})
	if err != nil {
		return closing{}, fmt.Errorf("%w: see closer.payment.url and %s", err, config.EnvPaymentSecret)
	}
	a.closers = append(a.closers, provider)
	asking, err := payment.New(payment.Options{
		Store: a.o.Store, Provider: provider, Batch: c.Batch, Logger: a.o.Logger.With("service", c.URL), Metrics: a.metrics,
	})
	if err != nil {
		return closing{}, err
	}
	a.ready.HintBy("the payment provider", func() string { return whyFailing(asking) })
	way.store = asking
	return way, nil
}

// failingFor is how long each call of a service must have failed before /-/ready says
// so: one order for which a service answers 500 is found within less.
const failingFor = 30 * time.Second

// whyFailing says why all calls of a service fail, for /-/ready; "": they do not.
func whyFailing(s interface {
	Failing() (since time.Time, cause string)
}) string {
	since, cause := s.Failing()
	if since.IsZero() || time.Since(since) < failingFor {
		return ""
	}
	return fmt.Sprintf("no call has succeeded since %s, the last one failed with: %s",
		since.UTC().Format(time.RFC3339), strings.Join(strings.Fields(cause), " "))
}

// sweeping finds orders in the database and closes them the way that is
// configured.
type sweeping struct {
	*store.Store
	way closer.Store
}

// CloseOrders implements compensator.Store.
func (s sweeping) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return s.way.CloseOrders(ctx, path, requests)
}

// Probe implements the question whether the store that closes works: the database does
// not know that of a service.
func (s sweeping) Probe(ctx context.Context) error {
	if p, ok := s.way.(batches.Prober); ok {
		return p.Probe(ctx)
	}
	return errors.ErrUnsupported
}

// MaxBatch is how many orders the store that closes takes at once.
func (s sweeping) MaxBatch() int { return batches.MaxBatch(s.way) }
