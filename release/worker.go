// Package release gives back stock that a service keeps, rather than the database:
// it reads the events that tell of closes, and calls a Releaser for each SKU that
// a closed order held.
//
//	worker.go     the parts and their lifecycle
//	partition.go  one partition's loop
//	decide.go     what to do after a try (pure)
//	http.go       a Releaser that posts to a service
//
// Events arrive at least once, and after a crash some are read again. So a release
// is called at least once too, each time with the same key: whoever keeps the stock
// must take a key that it has seen for done already.
package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/loglimit"
	"orderclose/internal/partition"
)

// Stage is the name of this stage in dead letters.
const Stage = "release"

// Endpoint is the name of the stock service in metrics.
const Endpoint = "stock"

// Defaults of Options.
const (
	// DefaultParallel is how many releases a process has called at once: what a small
	// service bears.
	DefaultParallel = 16
	// DefaultTimeout is how long one call may take.
	DefaultTimeout = 3 * time.Second
)

// The breaker: after so many calls in a row of which each was ErrUnavailable no
// more are made for a while, then one.
const (
	breakerAfter = 5
	breakerPause = 5 * time.Second
)

// Request is a quantity of one SKU that an order gives back.
type Request struct {
	OrderID  string
	SKU      string
	Quantity int64
	// Key is the idempotency key: the same for each repeat, and no other release has
	// it. It is the key of the release's row in the ledger.
	Key string
	// EventID is the id of the event that told of it.
	EventID string
}

// What a Releaser may answer, by wrapping it; compare with errors.Is. Nil says that
// the stock is back. An error that is none of these is this release's own failure,
// to be tried again.
var (
	// ErrAlready: the key was seen before, and the stock is back.
	ErrAlready = errors.New("it was released before")
	// ErrRefused: it will never be released, so that a person has to look at it.
	ErrRefused = errors.New("the release is refused")
	// ErrUnavailable: the service does not work now. A call that takes longer than
	// Options.Timeout counts as such an answer. It uses up a try of its event only if the
	// service answers other calls before and after. After several in a row the worker
	// waits for the service.
	ErrUnavailable = errors.New("the stock service is unavailable")
)

// Releaser gives stock back. It is called from many goroutines, and must take a key
// that it has seen for done.
type Releaser interface {
	Release(ctx context.Context, r Request) error
}

// Log is what a Worker needs of Kafka; internal/kafka's Cluster is one.
type Log interface {
	// Consume serves the partitions of a topic that the group gives to this
	// process until ctx ends.
	Consume(ctx context.Context, group, topic string, serve func(context.Context, orderclose.Claim)) error
	// Read reads a partition on, waiting a little for a record.
	Read(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
	// Verify says whether the position's log is still there.
	Verify(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
	// Spread sorts records of a claim by the partition of another topic that each
	// belongs to.
	Spread(ctx context.Context, claim orderclose.Claim, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error)
	// Idempotent returns a function for one goroutine that appends records so that a
	// repeat after a lost answer is not a duplicate.
	Idempotent(trying func(), repeated func(records int)) orderclose.AppendFunc
}

// Result is what became of one call.
type Result string

const (
	Released Result = "released"
	Already  Result = "already"  // the service had seen the key
	Failed   Result = "failed"   // to be tried again
	Refused  Result = "refused"  // for good: dead letter
	GivenUp  Result = "given_up" // it failed too often: dead letter
)

// Metrics takes what there is to count; internal/obs has one for Prometheus. Its
// methods are called from many goroutines and must not block.
type Metrics interface {
	// StockRelease counts one call and how long it took. GivenUp comes after the
	// Failed of the last call, without a call of its own.
	StockRelease(result string, took time.Duration)
	// CallsFailing says since when no call of the stock service has succeeded. The zero
	// time: the last one did, or was answered with a refusal.
	CallsFailing(endpoint string, since time.Time)
	// StockWaiting adds to how many events were read and are not settled.
	StockWaiting(more int)
	// DeadLettered counts one event given up.
	DeadLettered(stage, cause string)
	// Stuck counts the times that a partition's loop hung and was started again.
	Stuck(stage, topic string, partition int)
	// Repeated counts records that may have been written twice.
	Repeated(records int)
	// Lost counts offsets that the log no longer had when they were asked for.
	Lost(topic string, partition int, records int64)
	// FetchFailing says since when no fetch of a partition has succeeded. The zero
	// time: they do.
	FetchFailing(stage, topic string, partition int, since time.Time)
	// FetchEnded says that a partition is fetched no longer.
	FetchEnded(stage, topic string, partition int)
}

// Options for a Worker. Log, Releaser, Group, EventsTopic and DeadLetterTopic must
// be set.
type Options struct {
	Log             Log
	Releaser        Releaser
	Group           string
	EventsTopic     string
	DeadLetterTopic string
	Event           string           // the type of the events that tell of closes; default orderclose.EventOrderClosed
	Parallel        int              // calls at once at most; default DefaultParallel
	Timeout         time.Duration    // of one call; default DefaultTimeout
	Now             func() time.Time // when a retry's time has come; default time.Now
	// Abandon is called, with the reason, when a loop hangs and cannot be stopped: the
	// process should exit, and its supervisor start another. Default panics.
	Abandon func(why string)
	Logger  *slog.Logger // default: discard
	Metrics Metrics      // default: none
}

// Worker calls the Releaser for what events tell. Make it with New.
type Worker struct {
	o        Options
	calls    chan struct{} // a place for each call under way
	breaker  *gobreaker.CircuitBreaker[struct{}]
	watchdog partition.Watchdog
	suspects closing.Suspects // events on which the service hangs

	mu      sync.Mutex
	failing time.Time // since when no call has succeeded; zero: the last one did
}

// New returns a Worker, or says what is missing in the options.
func New(o Options) (*Worker, error) {
	switch {
	case o.Log == nil, o.Releaser == nil, o.Group == "", o.EventsTopic == "", o.DeadLetterTopic == "":
		return nil, errors.New("release: Options need Log, Releaser, Group, EventsTopic and DeadLetterTopic")
	case o.Parallel < 0, o.Timeout < 0:
		return nil, fmt.Errorf("release: Parallel is %d and Timeout %v, both must be positive", o.Parallel, o.Timeout)
	}
	if o.Event == "" {
		o.Event = orderclose.EventOrderClosed
	}
	if o.Parallel == 0 {
		o.Parallel = DefaultParallel
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Abandon == nil {
		o.Abandon = func(why string) { panic("release: " + why) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	w := &Worker{o: o, calls: make(chan struct{}, o.Parallel)}
	w.watchdog = partition.Watchdog{Stage: Stage, Stuck: o.Metrics.Stuck, Abandon: o.Abandon, Logger: o.Logger}
	w.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: Stage, MaxRequests: 1, Timeout: breakerPause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerAfter },
		IsSuccessful: func(err error) bool { return !unavailable(err) },
		IsExcluded:   func(err error) bool { return errors.Is(err, errGivenUp) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			o.Logger.Warn("the stock service: calls are "+map[gobreaker.State]string{
				gobreaker.StateClosed: "made again", gobreaker.StateOpen: "not made for now", gobreaker.StateHalfOpen: "tried, one of them",
			}[to], "state", to)
		},
	})
	return w, nil
}

// Run releases until ctx ends. Before it returns, the calls under way have ended,
// within 2 s, what is settled is committed, and the group is left. It returns an
// error only if it could not begin.
func (w *Worker) Run(ctx context.Context) error {
	return w.o.Log.Consume(ctx, w.o.Group, w.o.EventsTopic, func(ctx context.Context, claim orderclose.Claim) {
		w.watchdog.Serve(ctx, claim, func(ctx context.Context, claim orderclose.Claim, pulse *partition.Pulse) {
			newLoop(ctx, w, claim, pulse).run()
		})
	})
}

// call calls the Releaser once. made says whether it was: not while the breaker is open,
// nor once ctx has ended.
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
		err := w.o.Releaser.Release(limited, r)
		if err != nil && ctx.Err() != nil { // which says nothing about the service
			err = fmt.Errorf("%w: %w", errGivenUp, err)
		}
		return struct{}{}, err
	})
	if !made {
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err) // the breaker's
	}
	result := resultOf(err)
	w.o.Metrics.StockRelease(string(result), time.Since(began))
	if !errors.Is(err, errGivenUp) {
		w.noteCall(result == Failed)
	}
	if !unavailable(err) && !errors.Is(err, errGivenUp) {
		w.suspects.Heard()
	}
	return true, err
}

// noteCall tells the metrics since when calls fail.
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
	w.o.Metrics.CallsFailing(Endpoint, since)
}

// errGivenUp marks a call that ended because this process gives up the partition.
var errGivenUp = errors.New("the call was given up")

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) StockRelease(string, time.Duration)          {}
func (noMetrics) CallsFailing(string, time.Time)              {}
func (noMetrics) StockWaiting(int)                            {}
func (noMetrics) DeadLettered(string, string)                 {}
func (noMetrics) Stuck(string, string, int)                   {}
func (noMetrics) Repeated(int)                                {}
func (noMetrics) Lost(string, int, int64)                     {}
func (noMetrics) FetchFailing(string, string, int, time.Time) {}
func (noMetrics) FetchEnded(string, string, int)              {}
