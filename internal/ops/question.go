package ops

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// waitKnown is how long Get waits for a newer answer if there is an older one.
	waitKnown = 200 * time.Millisecond
	// askAgain is the time until a question is asked again that got no answer, if it is not asked more often.
	askAgain = 5 * time.Second
)

// errNotYet says that a question has no answer yet.
var errNotYet = errors.New("no answer yet")

// Question is a question to a server. All who ask share the answers: more of them send no more requests.
// Make it with NewQuestion. It is safe for concurrent use.
type Question[T any] struct {
	ends  context.Context // of the server's answers
	every time.Duration   // an answer that is younger is not asked for again
	limit time.Duration   // of one attempt
	first time.Duration   // how long Get waits for the first answer
	ask   func(context.Context) (T, error)
	rest  func(T) time.Duration // how much longer than every an answer lasts; nil: no longer

	mu      sync.Mutex
	last    Answer[T]
	tried   time.Time     // when the last attempt ended
	running chan struct{} // closed when the present attempt ends; nil: none runs
}

// Answer is the last answer to a Question, and why there is no newer one.
type Answer[T any] struct {
	Value T
	At    time.Time // when it was given; zero: never
	Err   error     // of the attempts since then; nil: the answer is as new as it should be
	Since time.Time // the first of these errors
}

// Away reports whether the server does not answer.
func (a Answer[T]) Away() bool { return a.Err != nil }

// Known reports whether there is an answer.
func (a Answer[T]) Known() bool { return !a.At.IsZero() }

// NewQuestion returns a question that is asked at most once in the interval every, each time for limit at most. Get waits as
// long as first for the first answer. No attempt outlives ends.
func NewQuestion[T any](ends context.Context, every, limit, first time.Duration, ask func(context.Context) (T, error)) *Question[T] {
	return &Question[T]{ends: ends, every: every, limit: limit, first: first, ask: ask}
}

// Get returns the answer. It asks first if the last answer is too old. It waits for the new one for 200 ms, or as long as NewQuestion says for the first
// one and for one that nobody has asked for in a while, and then returns the last answer. The attempt goes on, and the next Get returns its result.
func (q *Question[T]) Get(ctx context.Context) Answer[T] {
	q.mu.Lock()
	wait := waitKnown
	if !q.last.Known() && !q.last.Away() {
		wait = q.first
	}
	if q.running == nil {
		every := q.every
		switch {
		case q.last.Away():
			every = min(every, askAgain)
		case q.rest != nil && q.last.Known():
			every += q.rest(q.last.Value)
		}
		if time.Since(q.tried) < every || q.ends.Err() != nil {
			defer q.mu.Unlock()
			return q.last
		}
		if time.Since(q.tried) > 2*max(every, q.every) { // nobody has asked for a while
			wait = q.first
		}
		q.running = make(chan struct{})
		go q.refresh()
	}
	running := q.running
	q.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-running:
	case <-late.C:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.last
	if !a.Known() && !a.Away() {
		a.Err, a.Since = errNotYet, time.Now()
	}
	return a
}

// Forget makes the next Get ask again, such as after an action.
func (q *Question[T]) Forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tried = time.Time{}
}

func (q *Question[T]) refresh() {
	ctx, cancel := context.WithTimeout(q.ends, q.limit)
	defer cancel()
	var v T
	err := retry.Catch(func() (err error) {
		v, err = q.ask(ctx)
		return err
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil:
		q.last = Answer[T]{Value: v, At: now}
	case !q.last.Away():
		q.last.Err, q.last.Since = err, now
	default:
		q.last.Err = err
	}
	q.tried = now
	close(q.running)
	q.running = nil
}
