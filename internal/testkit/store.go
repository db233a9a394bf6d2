package testkit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
)

// Store is a closing Store in memory: it closes orders that are due by the clock of the machine. Set the fields before use. The methods are safe for
// concurrent use.
type Store struct {
	Due map[string]time.Time // absent: due long ago
	// On is called first in each call. Its error is the answer.
	On func(ctx context.Context, requests []orderclose.CloseRequest) error
	// Takes is how long a call takes while so many orders are in flight.
	Takes func(inFlight int) time.Duration
	// Verdict is that on an order which is due; "": it is closed.
	Verdict func(id string) orderclose.Verdict
	// Answers changes the outcomes of a call.
	Answers func(requests []orderclose.CloseRequest, outcomes []orderclose.Outcome)

	mu       sync.Mutex
	closed   []string
	closedAt map[string]time.Time
	batches  []int
	inFlight int
	took     []time.Duration
}

// CloseOrders implements closer.Store.
func (s *Store) CloseOrders(ctx context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	s.mu.Lock()
	s.batches = append(s.batches, len(requests))
	s.mu.Unlock()
	if s.On != nil {
		if err := s.On(ctx, requests); err != nil {
			return nil, err
		}
	}
	if s.Takes != nil {
		s.wait(len(requests))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = s.close(r.OrderID, time.Now())
	}
	if s.Answers != nil {
		s.Answers(requests, outcomes)
	}
	return outcomes, nil
}

func (s *Store) wait(orders int) {
	s.mu.Lock()
	s.inFlight += orders
	took := s.Takes(s.inFlight)
	s.mu.Unlock()
	time.Sleep(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight -= orders
	s.took = append(s.took, took)
}

// close closes an order if it can. The caller holds mu.
func (s *Store) close(id string, now time.Time) orderclose.Outcome {
	o := orderclose.Outcome{OrderID: id, Verdict: orderclose.Closed, Due: s.Due[id], At: now}
	if now.Before(o.Due) {
		o.Verdict = orderclose.NotDue
	} else if s.Verdict != nil && s.Verdict(id) != "" {
		o.Verdict = s.Verdict(id)
	}
	if o.Verdict == orderclose.Closed {
		s.closed = append(s.closed, id)
		if s.closedAt == nil {
			s.closedAt = map[string]time.Time{}
		}
		s.closedAt[id] = now
	}
	return o
}

// Closed returns the orders that were closed, in that order, each as often as it was.
func (s *Store) Closed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.closed)
}

// ClosedAt is when an order was closed.
func (s *Store) ClosedAt(id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closedAt[id]
}

// Batches are the numbers of orders of all calls.
func (s *Store) Batches() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

// Took are the times of the calls of a store with Takes, in the order of their end.
func (s *Store) Took() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.took)
}

// ProbedStore is a Store with a probe.
type ProbedStore struct {
	*Store
	Probes func(ctx context.Context) error
}

// Probe implements bisect.Prober.
func (s ProbedStore) Probe(ctx context.Context) error { return s.Probes(ctx) }

// FailsOn returns a Store.On that fails on calls with orders whose ids begin so.
func FailsOn(prefix string) func(context.Context, []orderclose.CloseRequest) error {
	return func(_ context.Context, requests []orderclose.CloseRequest) error {
		if Asks(requests, prefix) {
			return errors.New("no stock row")
		}
		return nil
	}
}

// Asks reports whether one of the requests is for an order whose id begins so.
func Asks(requests []orderclose.CloseRequest, prefix string) bool {
	return slices.ContainsFunc(requests, func(r orderclose.CloseRequest) bool { return strings.HasPrefix(r.OrderID, prefix) })
}

// Gives returns a Store.Verdict for the orders whose ids begin so.
func Gives(v orderclose.Verdict, prefix string) func(id string) orderclose.Verdict {
	return func(id string) orderclose.Verdict {
		if strings.HasPrefix(id, prefix) {
			return v
		}
		return ""
	}
}
