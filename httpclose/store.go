package httpclose

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"orderclose"
	"orderclose/internal/loglimit"
	"orderclose/internal/patience"
	"orderclose/internal/signed"
)

// DefaultBatch is how many orders one request has at most, unless Options say
// otherwise.
const DefaultBatch = 200

// Endpoint is the name of the service in metrics and errors.
const Endpoint = "close"

// Metrics takes what there is to count of calls; internal/obs has one for
// Prometheus. Its methods are called from many goroutines and must not block.
type Metrics interface {
	// Breaker says which state the breaker of an endpoint is in: closed, half_open or
	// open.
	Breaker(endpoint, state string)
	// Called says how long a call took: result is ok, failed, timeout, or refused if
	// the breaker was open.
	Called(endpoint, result string, took time.Duration)
	// CallLimit is when the next call will time out.
	CallLimit(endpoint string, limit time.Duration)
	// CallsFailing says since when no call has succeeded, whatever the answers were. The
	// zero time: the last one did.
	CallsFailing(endpoint string, since time.Time)
}

// Options for a Store. URL and Secrets must be set.
type Options struct {
	URL     string   // of the service
	Secrets []string // that requests are signed with; several while one is being changed
	Batch   int      // orders per request at most; default DefaultBatch
	// Transport carries the requests; default: one of its own.
	Transport http.RoundTripper
	Now       func() time.Time // default time.Now
	Logger    *slog.Logger     // default: discard
	Metrics   Metrics          // default: none
}

// Store closes orders through a service. It may be used from any goroutine. Make
// it with New, and Close it.
type Store struct {
	o        Options
	client   *signed.Client
	endpoint *patience.Endpoint
}

// New returns a Store, or says what is wrong with the options. It does not
// connect.
func New(o Options) (*Store, error) {
	if o.Batch < 0 {
		return nil, fmt.Errorf("httpclose: Batch is %d, it must be positive", o.Batch)
	}
	if o.Batch == 0 {
		o.Batch = DefaultBatch
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.Metrics == nil {
		o.Metrics = patience.NoMetrics{}
	}
	client, err := signed.NewClient(signed.ClientOptions{URL: o.URL, Secrets: o.Secrets, Transport: o.Transport, Now: o.Now})
	if err != nil {
		return nil, fmt.Errorf("httpclose: %w", err)
	}
	return &Store{o: o, client: client, endpoint: patience.New(Endpoint, o.Metrics)}, nil
}

// Close closes idle connections. Of a nil Store, as New returns with an error, it does
// nothing.
func (s *Store) Close() error {
	if s != nil {
		s.client.Close()
	}
	return nil
}

// CloseOrders asks the service to close orders, and answers every request in
// their order; of several for one order the service sees the one that is due
// last, and the others get AlreadyClosed if that closed it.
//
// An error says that some orders may have been closed; asking again says
// AlreadyClosed. It is orderclose.ErrUnavailable or ctx's if there was no answer. Else
// the service refused what was sent, or answered 500 or something that is no reply: one
// of the orders may be at fault. The closer and the compensator find out which one.
func (s *Store) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	got, err := s.askAll(ctx, path, distinct(requests))
	if err != nil {
		return nil, fmt.Errorf("close %d orders from %q: %w", len(requests), requests[0].OrderID, err)
	}
	return outcomes(requests, got), nil
}

// Failing says since when no call of the service has succeeded, and why the last one
// failed. The zero time: the last one succeeded, or there was none.
func (s *Store) Failing() (since time.Time, cause string) { return s.endpoint.Failing() }

// MaxBatch is how many orders go into one request.
func (s *Store) MaxBatch() int { return s.o.Batch }

// distinct returns one request for each order, the one that is due last: of two
// records of one order that is the one which can do no harm.
func distinct(requests []orderclose.CloseRequest) []orderclose.CloseRequest {
	at := make(map[string]int, len(requests))
	orders := make([]orderclose.CloseRequest, 0, len(requests))
	for _, r := range requests {
		i, again := at[r.OrderID]
		switch {
		case !again:
			at[r.OrderID] = len(orders)
			orders = append(orders, r)
		case r.Due.After(orders[i].Due):
			orders[i] = r
		}
	}
	return orders
}

// outcomes answers requests by what was said of their orders.
func outcomes(requests []orderclose.CloseRequest, got map[string]orderclose.Outcome) []orderclose.Outcome {
	out := make([]orderclose.Outcome, len(requests))
	seen := make(map[string]bool, len(requests))
	for i, q := range requests {
		out[i] = got[q.OrderID]
		if seen[q.OrderID] && out[i].Verdict == orderclose.Closed {
			out[i].Verdict = orderclose.AlreadyClosed
		}
		seen[q.OrderID] = true
	}
	return out
}
