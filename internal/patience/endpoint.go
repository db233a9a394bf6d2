// Package patience is how long to wait for somebody else's service, and when to
// stop asking it.
//
// A call times out at one and a half times the p99 of the last calls, at 3 s at
// most (window.go). Several time-outs in a row open a breaker: calls then fail at
// once, except for one now and then that tries whether it is better.
package patience

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"orderclose"
)

const (
	// failuresToOpen in a row open the breaker. By then the limit of a call is as
	// long as it gets, or nearly.
	failuresToOpen = 5
	// openFor is how long nobody is asked before one call tries again.
	openFor = 5 * time.Second
	// maxHold bounds how long a service may ask to be left alone.
	maxHold = 5 * time.Minute
)

// What can be wrong with a call besides its own error. Both come with
// orderclose.ErrUnavailable.
var (
	ErrTimeout = errors.New("no answer in time")
	ErrOpen    = errors.New("it did not answer lately and is not asked for the moment")
)

// The states of a breaker, as Metrics are told them.
const (
	Closed   = "closed"    // calls go through
	HalfOpen = "half_open" // one call tries
	Open     = "open"      // no call goes through
)

// Metrics takes what there is to count of calls; internal/obs has one for
// Prometheus. Its methods are called from many goroutines and must not block.
type Metrics interface {
	// Breaker says which state the breaker of an endpoint is in.
	Breaker(endpoint, state string)
	// Called says how long a call took: result is ok, failed, timeout; and refused,
	// with no time at all, if the breaker was open.
	Called(endpoint, result string, took time.Duration)
	// CallLimit is when the next call will time out.
	CallLimit(endpoint string, limit time.Duration)
	// CallsFailing says since when no call has succeeded, whatever the answers were. The
	// zero time: the last one did.
	CallsFailing(endpoint string, since time.Time)
}

// Results of Metrics.Called.
const (
	ResultOK      = "ok"
	ResultFailed  = "failed"
	ResultTimeout = "timeout"
	ResultRefused = "refused"
)

// Endpoint is a service that is called with patience. It may be called from any
// goroutine. Make it with New.
type Endpoint struct {
	name    string
	metrics Metrics
	breaker *gobreaker.CircuitBreaker[struct{}]

	mu     sync.Mutex
	window Window
	held   time.Time // until then it asked to be left alone
	since  time.Time // of the first of the calls that failed in a row; zero: the last one succeeded
	cause  string    // why the last of them failed
}

// New returns an Endpoint of a name, for metrics and errors. m may be nil.
func New(name string, m Metrics) *Endpoint {
	if m == nil {
		m = NoMetrics{}
	}
	e := &Endpoint{name: name, metrics: m}
	e.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		Timeout:     openFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failuresToOpen },
		// An answer that says no is an answer.
		IsSuccessful:  func(err error) bool { return !errors.Is(err, orderclose.ErrUnavailable) },
		IsExcluded:    func(err error) bool { return errors.Is(err, errGivenUp) },
		OnStateChange: func(_ string, _, to gobreaker.State) { m.Breaker(name, stateOf(to)) },
	})
	m.Breaker(name, Closed)
	m.CallLimit(name, e.Limit())
	return e
}

// Limit is how long the next call may take.
func (e *Endpoint) Limit() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.window.Limit()
}

// errGivenUp marks a call whose caller did not wait for its end: that says
// nothing of the service.
var errGivenUp = errors.New("the caller gave up")

// Do calls f with a context that ends when the call has taken too long, and
// returns its error. f must return soon after its context has ended. An error of
// f that is orderclose.ErrUnavailable is a failure of the service, and so is a
// time-out, whose error is ErrTimeout and orderclose.ErrUnavailable. With the
// breaker open f is not called, and the error is ErrOpen and
// orderclose.ErrUnavailable; likewise while the service wants to be left alone,
// which an error of f with a method RetryAfter() time.Duration says.
func (e *Endpoint) Do(ctx context.Context, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if wait := e.holding(); wait > 0 {
		e.metrics.Called(e.name, ResultRefused, 0)
		return fmt.Errorf("%s: %w: %w: it wants no call for another %v: the last call failed with: %s", e.name, orderclose.ErrUnavailable, ErrOpen, wait.Round(time.Second), e.lastCause())
	}
	_, err := e.breaker.Execute(func() (struct{}, error) { return struct{}{}, e.call(ctx, f) })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		e.metrics.Called(e.name, ResultRefused, 0)
		err = fmt.Errorf("%w: %w: the last call failed with: %s", orderclose.ErrUnavailable, ErrOpen, e.lastCause())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// heardOut is the key of HearOut's contexts.
type heardOut struct{}

// HearOut returns a context whose calls may take as long as a call ever may. What
// they take says nothing about other calls: it is for a request that timed out before.
func HearOut(ctx context.Context) context.Context {
	return context.WithValue(ctx, heardOut{}, true)
}

// call is one call and what is learned from it.
func (e *Endpoint) call(ctx context.Context, f func(ctx context.Context) error) error {
	limit, alone := e.Limit(), ctx.Value(heardOut{}) != nil
	if alone || e.breaker.State() == gobreaker.StateHalfOpen {
		limit = maxLimit // it is asked once: hear it out
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := f(limited)
	took := time.Since(began)
	switch {
	case err == nil:
		e.learn(ResultOK, took, nil, func(w *Window) { w.Add(took) })
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w: %w", errGivenUp, ctx.Err(), err)
	case limited.Err() != nil:
		err = fmt.Errorf("%w: %w: %v passed: %w", orderclose.ErrUnavailable, ErrTimeout, limit, err)
		e.learn(ResultTimeout, took, err, func(w *Window) {
			if !alone {
				w.AddTimeout(limit)
			}
		})
		return err
	}
	if asked, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		e.hold(asked.RetryAfter())
	}
	e.learn(ResultFailed, took, err, func(*Window) {}) // how fast somebody says no tells nothing
	return err
}

// maxCause is how many bytes of the last failure are kept.
const maxCause = 500

// learn tells the metrics of a call, and remembers its failure, if it failed, and what
// the window is to remember of it.
func (e *Endpoint) learn(result string, took time.Duration, failure error, what func(w *Window)) {
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
		e.cause = failure.Error()
		e.cause = strings.ToValidUTF8(e.cause[:min(len(e.cause), maxCause)], "")
	}
	since := e.since
	e.mu.Unlock()
	e.metrics.Called(e.name, result, took)
	e.metrics.CallLimit(e.name, limit)
	e.metrics.CallsFailing(e.name, since)
}

// Failing says since when no call has succeeded, and why the last one failed. The zero
// time: the last one succeeded, or there was none.
func (e *Endpoint) Failing() (since time.Time, cause string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since, e.cause
}

func (e *Endpoint) lastCause() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// holding is how long the service still wants to be left alone.
func (e *Endpoint) holding() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.held)
}

func (e *Endpoint) hold(d time.Duration) {
	if d <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = time.Now().Add(min(d, maxHold))
}

func stateOf(s gobreaker.State) string {
	switch s {
	case gobreaker.StateOpen:
		return Open
	case gobreaker.StateHalfOpen:
		return HalfOpen
	default:
		return Closed
	}
}

// NoMetrics counts nothing.
type NoMetrics struct{}

// Breaker implements Metrics.
func (NoMetrics) Breaker(string, string) {}

// Called implements Metrics.
func (NoMetrics) Called(string, string, time.Duration) {}

// CallLimit implements Metrics.
func (NoMetrics) CallLimit(string, time.Duration) {}

// CallsFailing implements Metrics.
func (NoMetrics) CallsFailing(string, time.Time) {}
