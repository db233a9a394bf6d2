package httpclose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"orderclose"
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
	blame    blame
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
	if o.Metrics == nil {
		o.Metrics = patience.NoMetrics{}
	}
	client, err := signed.NewClient(signed.ClientOptions{URL: o.URL, Secrets: o.Secrets, Transport: o.Transport, Now: o.Now})
	if err != nil {
		return nil, fmt.Errorf("httpclose: %w", err)
	}
	return &Store{o: o, client: client, endpoint: patience.New(Endpoint, o.Metrics), blame: blame{since: map[string]uint64{}}}, nil
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.client.Close()
	return nil
}

// CloseOrders asks the service to close orders, and answers every request in
// their order; of several for one order the service sees the one that is due
// last, and the others get AlreadyClosed if that closed it.
//
// The error is orderclose.ErrUnavailable, or ctx's: there was no answer, or none
// that says anything about an order. Some may have been closed, and asking again
// says AlreadyClosed.
func (s *Store) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	orders := distinct(requests)
	r := &round{s: s, path: path, got: make(map[string]orderclose.Outcome, len(orders)), dark: s.blame.isDark()}
	err := r.begin(ctx, orders)
	if missing := r.missing(orders); err == nil && len(missing) > 0 {
		s.o.Logger.Warn("the service left out orders, asking for them once more", "orders", len(missing), "first", missing[0].OrderID)
		r.again = true
		err = r.askAll(ctx, missing)
	}
	if err == nil {
		err = r.judge()
	}
	if errors.Is(err, errNobody) {
		s.blame.setDark()
	}
	if err != nil {
		return nil, fmt.Errorf("close %d orders from %q: %w", len(requests), requests[0].OrderID, err)
	}
	return r.outcomes(requests), nil
}

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

// outcomes answers requests.
func (r *round) outcomes(requests []orderclose.CloseRequest) []orderclose.Outcome {
	out := make([]orderclose.Outcome, len(requests))
	seen := make(map[string]bool, len(requests))
	for i, q := range requests {
		o, ok := r.got[q.OrderID]
		if !ok {
			o = failed(orderclose.Outcome{OrderID: q.OrderID, Due: q.Due, At: r.s.o.Now()}, errNoVerdict)
		}
		if seen[q.OrderID] && o.Verdict == orderclose.Closed {
			o.Verdict = orderclose.AlreadyClosed
		}
		seen[q.OrderID] = true
		out[i] = o
	}
	return out
}

var errNoVerdict = errors.New("the service gave no verdict, asked twice")

// missing are the orders without a verdict whose request did not fail.
func (r *round) missing(orders []orderclose.CloseRequest) []orderclose.CloseRequest {
	return slices.DeleteFunc(slices.Clone(orders), func(o orderclose.CloseRequest) bool {
		_, ok := r.got[o.OrderID]
		return ok || slices.ContainsFunc(r.suspects, func(s suspect) bool { return s.order.OrderID == o.OrderID })
	})
}

// blame remembers which orders failed alone while nobody else was asked, and so
// cannot be told from a service that fails for everybody.
type blame struct {
	mu       sync.Mutex
	answered uint64            // requests that brought a verdict, ever
	since    map[string]uint64 // by order that failed alone: how many had, then
	dark     bool              // the last time nobody got a verdict
}

// maxSince bounds what is remembered. Beyond it all is forgotten: it only takes
// an order another round.
const maxSince = 1000

// heard notes that the service gave verdicts of these orders.
func (b *blame) heard(got map[string]orderclose.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered++
	b.dark = false
	for id := range got {
		delete(b.since, id)
	}
}

func (b *blame) isDark() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dark
}

func (b *blame) setDark() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dark = true
}

// certain says whether the service gave a verdict of another order since this one
// failed for the first time.
func (b *blame) certain(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since, ok := b.since[id]; ok {
		return b.answered > since
	}
	if len(b.since) >= maxSince {
		clear(b.since)
	}
	b.since[id] = b.answered
	return false
}

// acquit forgets an order whose failure was counted: its next one is another.
func (b *blame) acquit(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, id)
}
