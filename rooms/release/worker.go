// Package release returns stock to the service that keeps it. It is for shops whose stock is not in the database. A Worker reads
// the events of closed orders, and calls a Releaser for each SKU that an order held. Create it with New and call Run.
//
//	worker.go     types, options and lifecycle
//	handler.go    the events of one partition: which wait, and which are tried now
//	attempt.go    one attempt: the calls for an event, and what follows
//	decide.go     what to do after an attempt (pure)
//	metrics.go    metrics
//	http.go       a Releaser that calls a service over HTTP
//	room.go       the role release
//
// Events are delivered at least once, and some are read again after a crash. So a
// Releaser may be called more than once for a release, with the same key each time. It
// must treat a key that it has seen as already released.
package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/tracing"
)

// Stage is the name of this part in dead letters.
const Stage = "release"

// Endpoint is the name of the stock service in metrics.
const Endpoint = "stock"

// Defaults of Options.
const (
	// DefaultParallel is the default limit of concurrent calls, which a small service
	// can handle.
	DefaultParallel = 16
	// DefaultTimeout is the default timeout of one call.
	DefaultTimeout = 3 * time.Second
)

// The breaker opens after breakerAfter calls in a row that returned ErrUnavailable,
// and lets one call through after breakerPause.
const (
	breakerAfter = 5
	breakerPause = 5 * time.Second
)

// Request is a quantity of one SKU to return to stock.
type Request struct {
	OrderID  string
	SKU      string
	Quantity int64
	// Key is the idempotency key: the same in each attempt, and unique to this
	// release. It is the key of the release's row in the ledger.
	Key string
	// EventID is the id of the event of the closed order.
	EventID string
}

// Errors of a Releaser, to be wrapped; compare with errors.Is. nil means that the
// stock was returned. Any other error is a failure of this release, which is retried.
var (
	// ErrAlready means that the key was seen before and the stock was returned.
	ErrAlready = errors.New("it was released before")
	// ErrRefused means that the release will never succeed, so that an operator has
	// to look at it.
	ErrRefused = errors.New("the release is refused")
	// ErrUnavailable means that the service does not work now. orderclose.ErrUnavailable
	// and a call that exceeds Options.Timeout count the same. Such a call uses up an
	// attempt of its event only if the service has answered other calls since the event failed last.
	// After five in a row the Worker pauses all calls for 5 s.
	ErrUnavailable = errors.New("the stock service is unavailable")
)

// Releaser returns stock. It is called from many goroutines. It must treat a key that
// it has seen as already released.
type Releaser interface {
	// Release returns the stock of one request. ctx ends after Options.Timeout. The errors
	// are ErrAlready, ErrRefused and ErrUnavailable; any other error is retried, and so is a panic.
	Release(ctx context.Context, r Request) error
}

// Log is the part of Kafka that a Worker uses: Log of pipeline.Connections.
type Log = partition.Log

// result is the result of one call.
type result string

const (
	resultReleased result = "released"
	resultAlready  result = "already"  // the service had seen the key before
	resultFailed   result = "failed"   // to be retried
	resultRefused  result = "refused"  // for good: dead letter
	resultGivenUp  result = "given_up" // a release that failed too often: dead letter
)

// Options configure a Worker. Log, Releaser, Group, EventsTopic and DeadLetterTopic
// are required.
type Options struct {
	Log             Log
	Releaser        Releaser
	Group           string
	EventsTopic     string
	DeadLetterTopic string
	Event           string           // type of the events; default orderclose.EventOrderClosed
	Parallel        int              // maximum of concurrent calls; default DefaultParallel
	Timeout         time.Duration    // timeout of one call; default DefaultTimeout
	Now             func() time.Time // clock for retries; default time.Now
	// OnHang is called with the reason when a loop hangs and cannot be stopped, or a call of the
	// Releaser goes on for 10 s after its context has ended. The
	// process should then exit and be restarted by its supervisor. Default: panic.
	OnHang func(why string)
	Logger *slog.Logger // default: warnings and errors, to slog.Default
	// Registerer gets the metrics (orderclose_…). Workers of one process may share it. Default:
	// no metrics.
	Registerer prometheus.Registerer
	// TracerProvider makes the spans of traced orders. Default: no spans.
	TracerProvider trace.TracerProvider
}

// Worker releases the stock of closed orders. Create it with New.
type Worker struct {
	o       Options
	metrics *workerMetrics
	tracer  tracing.Tracer
	calls   chan struct{} // one element for each call in flight
	breaker *gobreaker.CircuitBreaker[struct{}]
	stage   partition.Stage
	answers atomic.Int64 // calls that the service has answered

	mu      sync.Mutex
	failing time.Time // since when all calls have failed; zero: the last call succeeded
}

// New returns a Worker, or an error if an option is missing or invalid.
func New(o Options) (*Worker, error) {
	switch {
	case o.Log == nil, o.Releaser == nil, o.Group == "", o.EventsTopic == "", o.DeadLetterTopic == "":
		return nil, errors.New("release: Options need Log, Releaser, Group, EventsTopic and DeadLetterTopic")
	case o.Parallel < 0, o.Timeout < 0:
		return nil, fmt.Errorf("release: Parallel is %d and Timeout %v, neither may be negative", o.Parallel, o.Timeout)
	}
	o.Event = cmp.Or(o.Event, orderclose.EventOrderClosed)
	o.Parallel = cmp.Or(o.Parallel, DefaultParallel)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	partition.SetDefaults(Stage, &o.OnHang, &o.Logger, &o.Now)
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	w := &Worker{o: o, metrics: m, tracer: tracing.New(o.TracerProvider), calls: make(chan struct{}, o.Parallel)}
	w.stage = partition.Stage{
		Name: Stage, Log: o.Log, DeadLetterTopic: o.DeadLetterTopic,
		Loss:    "the log has lost events: orderclose events again writes them again, so that their stock is released",
		Metrics: m.Metrics, OnHang: o.OnHang, Logger: o.Logger,
	}
	w.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: Stage, MaxRequests: 1, Timeout: breakerPause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerAfter },
		IsSuccessful: func(err error) bool { return !unavailable(err) },
		IsExcluded:   func(err error) bool { return errors.Is(err, errGivenUp) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			o.Logger.Warn("stock service circuit breaker changed", "state", to.String())
		},
	})
	return w, nil
}

// Run releases stock until ctx ends. It returns when the calls in flight have ended,
// within 2 s, settled events are committed, and the group is left. It returns an
// error only if the group could not be consumed.
func (w *Worker) Run(ctx context.Context) error {
	return w.stage.Consume(ctx, w.o.Group, w.o.EventsTopic, w.newHandler)
}

// call calls the Releaser once. made is false if it was not called, because the
// breaker is open or ctx has ended.
func (w *Worker) call(ctx context.Context, r Request) (made bool, err error) {
	select {
	case w.calls <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-w.calls }()
	began := time.Now()
	_, err = w.breaker.Execute(func() (struct{}, error) {
		made = true
		limited, cancel := context.WithTimeout(ctx, w.o.Timeout)
		defer cancel()
		defer partition.WatchCall(limited, func() {
			w.o.OnHang("a call of the stock service has not returned 10 s after its context ended") //mutant:release-hang-silent
		})()
		err := retry.Catch(func() error { return w.o.Releaser.Release(limited, r) })
		if err != nil && ctx.Err() != nil { // the error says nothing about the service //mutant:stop-counts-failure
			err = fmt.Errorf("%w: %w", errGivenUp, err)
		}
		return struct{}{}, err
	})
	if !made {
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err) // error of the breaker
	}
	res := resultOf(err)
	w.metrics.Called(res, time.Since(began))
	if !errors.Is(err, errGivenUp) {
		w.noteCall(res == resultFailed)
	}
	if !unavailable(err) && !errors.Is(err, errGivenUp) {
		w.answers.Add(1)
	}
	return true, err
}

// noteCall updates since when calls fail.
func (w *Worker) noteCall(failed bool) {
	w.mu.Lock()
	switch {
	case !failed:
		w.failing = time.Time{}
	case w.failing.IsZero():
		w.failing = time.Now()
	}
	since := w.failing
	w.mu.Unlock()
	w.metrics.CallsFailing(since)
}

// errGivenUp marks a call that ended because this process loses the partition or
// stops.
var errGivenUp = errors.New("the call was cancelled")
