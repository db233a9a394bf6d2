package httpclose

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
)

// DefaultBatch is the default number of orders per request.
const DefaultBatch = 200

// Endpoint is the name of the service in metrics and errors.
const Endpoint = "close"

// Metrics receives the counts of calls. Package pipeline implements it for Prometheus.
// Its methods are called from many goroutines and must not block.
type Metrics interface {
	// Breaker sets the state of an endpoint's circuit breaker: closed, half_open or
	// open.
	Breaker(endpoint, state string)
	// Called records the duration of a call. result is ok, failed or timeout. It is
	// refused, with a duration of 0, if the call was not made: the breaker was open, or
	// the service asked for a pause by Retry-After.
	Called(endpoint, result string, took time.Duration)
	// CallLimit sets the timeout of the next call.
	CallLimit(endpoint string, limit time.Duration)
	// CallsFailing sets since when all calls have failed, whatever the failures were.
	// The zero time means that the last call succeeded.
	CallsFailing(endpoint string, since time.Time)
}

// Options configure a Store. URL and Secrets are required.
type Options struct {
	URL     string   // URL of the service
	Secrets []string // secrets that sign requests; several while one is being replaced
	Batch   int      // maximum of orders per request; default DefaultBatch
	// Transport sends the requests. Default: a transport of its own.
	Transport http.RoundTripper
	Now       func() time.Time // default: time.Now
	Logger    *slog.Logger     // default: warnings and errors, to slog.Default
	Metrics   Metrics          // default: none
}

// Store closes orders through a service. It is safe for concurrent use. Create it
// with New, and call Close in the end.
type Store struct {
	o        Options
	client   *httpcall.Client
	endpoint *httpcall.Endpoint
}

// New returns a Store, or an error if the options are invalid. It opens no
// connection.
func New(o Options) (*Store, error) {
	if o.Batch < 0 {
		return nil, fmt.Errorf("httpclose: Batch is %d, it must not be negative", o.Batch)
	}
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = retry.LimitLogs(o.Logger)
	client, err := httpcall.NewClient(o.URL, o.Secrets, o.Transport)
	if err != nil {
		return nil, fmt.Errorf("httpclose: %w", err)
	}
	return &Store{o: o, client: client, endpoint: httpcall.NewEndpoint(Endpoint, o.Metrics)}, nil
}

// Close closes idle connections. On a nil Store, which New returns with an error, it
// does nothing.
func (s *Store) Close() error {
	if s != nil {
		s.client.Close()
	}
	return nil
}

// CloseOrders asks the service to close orders, and returns one outcome for each
// request, in the order of the requests. If several requests are for one order, the
// service gets the one with the latest due time. The others get AlreadyClosed if it
// closed the order.
//
// After an error some orders may have been closed; the next call then gets
// AlreadyClosed for them. The error wraps orderclose.ErrUnavailable or ctx's error if
// there was no answer. Otherwise the service rejected the request, or answered 500 or
// something that is not a reply: one of the orders may be at fault. The closer and
// the compensator find out which one.
func (s *Store) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	got := make(map[string]orderclose.Outcome, len(requests))
	for part := range slices.Chunk(distinct(requests), s.o.Batch) {
		if err := s.ask(ctx, path, part, got); err != nil {
			return nil, fmt.Errorf("close %d orders from %q: %w", len(requests), requests[0].OrderID, err)
		}
	}
	return outcomes(requests, got), nil
}

// Failing returns since when all calls of the service have failed, and why the last
// one failed. The zero time means that the last call succeeded, or that there was
// none.
func (s *Store) Failing() (since time.Time, cause string) { return s.endpoint.Failing() }

// MaxBatch returns the maximum of orders in one request.
func (s *Store) MaxBatch() int { return s.o.Batch }

// LimitsItself says that a request has a time limit from the durations of earlier ones.
func (s *Store) LimitsItself() bool { return true }

// distinct returns one request for each order: of several the one with the latest due
// time, which cannot close the order early.
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

// outcomes returns the outcome of each request's order.
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
