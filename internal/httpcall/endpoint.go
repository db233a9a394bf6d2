package httpcall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// failuresToOpen is how many failures in a row open the breaker. A call that
	// times out doubles the timeout of the next call. So the fifth call in a row has 16
	// times the timeout of the first, at most 3 s.
	failuresToOpen = 5
	// openFor is how long the breaker stays open before one call probes the service.
	openFor = 5 * time.Second
	// maxPause limits how long a service may ask for no calls by Retry-After.
	maxPause = 5 * time.Minute
	// forgetAfter is how long a failed call counts if no call follows. Other processes may have closed the orders that the call was for,
	// so this process has nothing to call about. About a pending order the provider is asked at least every 16.5 minutes, which is sooner.
	forgetAfter = 20 * time.Minute
)

// Errors of Do in addition to the errors of its f. An error that wraps one of them also wraps
// orderclose.ErrUnavailable. ErrBreakerOpen wraps orderclose.ErrNoOrderAtFault: no call was made, so no
// order is at fault.
var (
	ErrTimeout           = errors.New("no answer in time")
	ErrBreakerOpen error = breakerOpen{}
)

type breakerOpen struct{}

func (breakerOpen) Error() string { return "the circuit breaker is open" }
func (breakerOpen) Unwrap() error { return orderclose.ErrNoOrderAtFault }

// States of a breaker in Metrics.
const (
	BreakerClosed   = "closed"    // calls are made
	BreakerHalfOpen = "half_open" // one call probes the service
	BreakerOpen     = "open"      // no calls are made
)

var breakerStates = map[gobreaker.State]string{
	gobreaker.StateClosed: BreakerClosed, gobreaker.StateHalfOpen: BreakerHalfOpen, gobreaker.StateOpen: BreakerOpen,
}

// Metrics receives the counts of calls: see Metrics of package httpclose.
type Metrics interface {
	Breaker(endpoint, state string)
	Called(endpoint, result string, took time.Duration)
	CallLimit(endpoint string, limit time.Duration)
	CallsFailing(endpoint string, since time.Time)
}

// Results of Metrics.Called.
const (
	ResultOK      = "ok"
	ResultFailed  = "failed"
	ResultTimeout = "timeout"
	ResultRefused = "refused"
)

// Endpoint is a service that is called with an adaptive timeout and a circuit
// breaker. It is safe for concurrent use. Create it with NewEndpoint.
type Endpoint struct {
	name    string
	metrics Metrics
	breaker *gobreaker.CircuitBreaker[struct{}]

	mu          sync.Mutex
	window      AdaptiveTimeout
	pausedUntil time.Time   // end of a pause that the service asked for
	since       time.Time   // first of the current run of failed calls; zero: the last call succeeded
	cause       string      // error of the last failed call
	stale       *time.Timer // calls forget
}

// NewEndpoint returns an Endpoint with a name for metrics and errors. m may be nil.
func NewEndpoint(name string, m Metrics) *Endpoint {
	if m == nil {
		m = NoMetrics{}
	}
	e := &Endpoint{name: name, metrics: m}
	e.stale = time.AfterFunc(forgetAfter, e.forget)
	e.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		Timeout:     openFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failuresToOpen },
		// An error response other than ErrUnavailable still shows that the service
		// works.
		IsSuccessful:  func(err error) bool { return !errors.Is(err, orderclose.ErrUnavailable) },
		IsExcluded:    func(err error) bool { return errors.Is(err, errGivenUp) || errors.Is(err, errSearching) },
		OnStateChange: func(_ string, _, to gobreaker.State) { m.Breaker(name, breakerStates[to]) },
	})
	m.Breaker(name, BreakerClosed)
	m.CallLimit(name, e.Limit())
	return e
}

// Limit returns the timeout of the next call.
func (e *Endpoint) Limit() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.window.Limit()
}

// errGivenUp marks a call whose caller did not wait for its end. Such a call says
// nothing about the service.
var errGivenUp = errors.New("the caller gave up")

// errSearching marks a call that failed while the orders at fault were searched. It opens no breaker, because the calls beside it are for other orders.
var errSearching = errors.New("searching for the orders at fault")

// Do calls f with a context that ends at the timeout, and returns the error of f. f
// must return soon after its context has ended. An error of f that wraps
// orderclose.ErrUnavailable counts as a failure of the service. So does a timeout;
// its error wraps ErrTimeout and orderclose.ErrUnavailable. While the breaker is
// open, Do does not call f and returns an error that wraps ErrBreakerOpen and
// orderclose.ErrUnavailable. It does the same while the service wants no calls: an
// error of f may have a method RetryAfter() time.Duration, of which Do obeys at most
// 5 minutes.
//
// If f fails after ctx has ended, the call says nothing about the service: it counts
// neither as a success nor as a failure. The error then wraps ctx's error.
func (e *Endpoint) Do(ctx context.Context, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if wait := e.pauseLeft(); wait > 0 {
		e.metrics.Called(e.name, ResultRefused, 0)
		_, cause := e.Failing()
		return fmt.Errorf("%s: %w: %w: no calls for another %v (Retry-After): the last call failed with: %s",
			e.name, orderclose.ErrUnavailable, ErrBreakerOpen, wait.Round(time.Second), cause)
	}
	_, err := e.breaker.Execute(func() (struct{}, error) { return struct{}{}, e.call(ctx, f) })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		e.metrics.Called(e.name, ResultRefused, 0)
		_, cause := e.Failing()
		err = fmt.Errorf("%w: %w: the last call failed with: %s", orderclose.ErrUnavailable, ErrBreakerOpen, cause)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// call makes one call and records its result. A call that decides about one order (bisect.IsAlone)
// gets the maximum timeout, 3 s, and its timeout does not change that of other calls.
func (e *Endpoint) call(ctx context.Context, f func(ctx context.Context) error) error {
	limit, longest := e.Limit(), bisect.IsAlone(ctx)
	if longest || e.breaker.State() == gobreaker.StateHalfOpen {
		limit = maxLimit // this one call decides, so it gets the longest timeout
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := f(limited)
	took := time.Since(began)
	switch {
	case err == nil:
		e.record(ResultOK, took, nil, func(w *AdaptiveTimeout) { w.Add(took) })
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w: %w", errGivenUp, ctx.Err(), err)
	case limited.Err() != nil:
		err = retry.WithCauses(fmt.Errorf("%w: %v passed: %w", ErrTimeout, limit, err), orderclose.ErrUnavailable)
		e.record(ResultTimeout, took, err, func(w *AdaptiveTimeout) {
			if !longest {
				w.AddTimeout(limit)
			}
		})
		return searched(ctx, err)
	}
	if asked, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		e.pause(asked.RetryAfter())
	}
	e.record(ResultFailed, took, err, func(*AdaptiveTimeout) {}) // the duration of an error response says nothing about the duration of a good one
	return searched(ctx, err)
}

// searched marks the error of a call that searches for orders at fault.
func searched(ctx context.Context, err error) error {
	if bisect.IsSearching(ctx) {
		return fmt.Errorf("%w: %w", errSearching, err)
	}
	return err
}

// maxCause limits the stored text of the last failure, in bytes.
const maxCause = 500

// record reports a call to the metrics, stores its failure, if any, and updates the
// window.
func (e *Endpoint) record(result string, took time.Duration, failure error, what func(w *AdaptiveTimeout)) {
	e.mu.Lock()
	what(&e.window)
	limit := e.window.Limit()
	switch {
	case failure == nil:
		e.since, e.cause = time.Time{}, ""
	case e.since.IsZero():
		e.since = time.Now()
		fallthrough
	default:
		e.cause = strings.ReplaceAll(failure.Error(), orderclose.ErrUnavailable.Error()+": ", "") // the errors that quote it say so
		e.cause = strings.ToValidUTF8(e.cause[:min(len(e.cause), maxCause)], "")
	}
	since := e.since
	e.stale.Reset(forgetAfter)
	e.mu.Unlock()
	e.metrics.Called(e.name, result, took)
	e.metrics.CallLimit(e.name, limit)
	e.metrics.CallsFailing(e.name, since)
}

// forget reports that no call fails. It runs forgetAfter the last call.
func (e *Endpoint) forget() {
	e.mu.Lock()
	e.since, e.cause = time.Time{}, ""
	e.mu.Unlock()
	e.metrics.CallsFailing(e.name, time.Time{})
	e.metrics.Breaker(e.name, BreakerClosed)
}

// Failing returns since when all calls have failed, and why the last one failed. The
// zero time means that the last call succeeded, or that there was none for 20 minutes.
func (e *Endpoint) Failing() (since time.Time, cause string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since, e.cause
}

// pauseLeft returns how long the service still wants no calls.
func (e *Endpoint) pauseLeft() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.pausedUntil)
}

func (e *Endpoint) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pausedUntil = time.Now().Add(min(d, maxPause))
}

// NoMetrics discards all counts.
type NoMetrics struct{}

// Breaker implements Metrics.
func (NoMetrics) Breaker(string, string) {}

// Called implements Metrics.
func (NoMetrics) Called(string, string, time.Duration) {}

// CallLimit implements Metrics.
func (NoMetrics) CallLimit(string, time.Duration) {}

// CallsFailing implements Metrics.
func (NoMetrics) CallsFailing(string, time.Time) {}
