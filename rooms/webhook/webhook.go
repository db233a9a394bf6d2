// Package webhook posts each event of outbox_events to a URL, for those who have no Kafka. A request is a CloudEvent in structured
// mode, signed as Standard Webhooks say (https://www.standardwebhooks.com).
//
// Run the role webhook beside sweeper, or beside closer and compensator; docs/webhook.md says what the receiver must do. A program that
// embeds the pipeline passes Room().
//
// Each process of the role takes rows out of outbox_events into its own table webhook_events, in one transaction. It chooses the first
// event of each order that is not sent, leases it, posts it, and marks it. So processes share the orders, and the events of
// an order are sent one after the other. An event that is not accepted waits, and with it the later events of its order. If the
// receiver accepts nothing, the process sends one event at a time until it does.
//
// Each event is sent at least once: if a process is killed between the answer and the mark, the event is sent again with the same
// webhook-id when its lease has passed.
//
//	room.go     the role, its settings, the check, and what is refused
//	webhook.go  the loop that sends, and the waits
//	post.go     one request: its signature, and what the answer means
//	events.go   the tables of the room
package webhook

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// parallel is how many requests a process has open at once, each of another order.
	parallel = 16
	// leaseMargin is how much longer than requestTimeout nobody else sends its event: the time to mark it.
	leaseMargin = 10 * time.Second
	// pollInterval is the time between two looks for new events. The time between two measurements is ten times as long.
	pollInterval = time.Second
	// stopTimeout is how long requests may go on when the process ends, which has 10 s, and markTimeout how long their outcomes may be marked.
	stopTimeout, markTimeout = 4 * time.Second, 7 * time.Second
	// An event that was not accepted waits for firstWait, and then for twice as long each time, up to longestWait.
	firstWait, longestWait = 5 * time.Second, time.Hour
	// After failuresToPause attempts in a row that failed, the process waits for a second, and then for twice as long each time,
	// up to longestPause. In between it sends one event.
	failuresToPause = 5
	longestPause    = time.Minute
)

// sender sends events until its context ends. It belongs to one goroutine.
type sender struct {
	table
	post    func(ctx context.Context, e event) outcome
	poll    time.Duration // pollInterval
	logger  *slog.Logger
	metrics *senderMetrics

	results  chan outcome
	done     []outcome // not marked yet
	inFlight int
	failures int       // attempts in a row that failed
	resumeAt time.Time // no request begins before
}

// run sends events until ctx ends. Requests in flight then have stopTimeout.
func (s *sender) run(ctx context.Context) error {
	s.results = make(chan outcome, parallel)
	posting, cancel := retry.WithFinishTime(ctx, stopTimeout)
	defer cancel()
	marking, cancel := retry.WithFinishTime(ctx, markTimeout)
	defer cancel()
	var beside, posts sync.WaitGroup
	beside.Go(func() { s.watch(ctx) })
	defer beside.Wait()
	failing := retry.NewBackOff()
	for ctx.Err() == nil {
		wait := doubled(s.poll, s.poll, 0)
		step, err := s.turn(marking, s.free())
		if err != nil {
			if failing.ShouldLog() && ctx.Err() == nil {
				s.logger.Warn("events cannot be read or marked, will retry", "err", err)
			}
			wait = failing.NextBackOff()
		} else {
			failing.Reset()
		}
		for _, e := range step.events {
			s.inFlight++
			posts.Go(func() { s.results <- s.post(posting, e) })
		}
		if step.taken < takeBatch {
			s.await(ctx, wait)
		}
	}
	posts.Wait()
	for s.inFlight > 0 {
		s.settle(posting, <-s.results)
	}
	if _, err := s.turn(marking, 0); err != nil { //mutant:webhook-unmarked
		s.logger.Warn("sent events cannot be marked as sent: the receiver gets them again", "events", len(s.done), "err", err)
	}
	return nil
}

// turn does a step, if there is something to do.
func (s *sender) turn(ctx context.Context, free int) (step, error) {
	if len(s.done) == 0 {
		if any, err := s.any(ctx); !any || err != nil {
			return step{}, err
		}
	}
	done, err := s.step(ctx, s.done, free, requestTimeout+leaseMargin)
	if err != nil {
		return step{}, err
	}
	s.done = nil
	for _, o := range done.dead {
		s.logger.Error("event given up", "order", o.order, "attempts", o.attempts, "err", o.err)
	}
	if done.others > 0 {
		s.logger.Error("another program takes rows of outbox_events: the receiver does not get them", "rows", done.others)
	}
	return done, nil
}

// free returns how many requests may begin now.
func (s *sender) free() int {
	switch {
	case time.Now().Before(s.resumeAt):
		return 0
	case s.failures >= failuresToPause: //mutant:webhook-floods-receiver
		return max(1-s.inFlight, 0)
	}
	return parallel - s.inFlight
}

// await waits for an outcome, but not longer than d, and takes those that are there.
func (s *sender) await(ctx context.Context, d time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case o := <-s.results:
		s.settle(ctx, o)
	case <-waiting.Done():
	}
	for len(s.results) > 0 {
		s.settle(ctx, <-s.results)
	}
}

// settle notes an outcome. An attempt that was cancelled by the end of the process says nothing: its lease passes.
func (s *sender) settle(posting context.Context, o outcome) {
	s.inFlight--
	switch {
	case o.err == nil:
		s.failures = 0
		s.metrics.posts.WithLabelValues("accepted").Inc()
	case errors.Is(o.err, context.Canceled) && posting.Err() != nil:
		return
	case !o.unsent:
		s.metrics.posts.WithLabelValues("failed").Inc()
		now := time.Now()
		if !now.Before(s.resumeAt) { // a failure during a pause belongs to those before it
			s.failures++
			if s.failures >= failuresToPause {
				s.resumeAt = now.Add(doubled(time.Second, longestPause, s.failures-failuresToPause))
			}
		}
		if held := now.Add(o.hold); held.After(s.resumeAt) {
			s.resumeAt, s.failures = held, max(s.failures, failuresToPause)
		}
		o.wait = max(doubled(firstWait, longestWait, o.attempts-1), o.wait)
		s.logger.Warn("event not accepted, will retry", "order", o.order, "attempts", o.attempts, "wait", o.wait.Round(time.Second), "err", o.err)
	}
	s.done = append(s.done, o)
}

// doubled returns the wait after failure n, from 0 on. It doubles up to longest, and differs by up to a fifth.
func doubled(first, longest time.Duration, n int) time.Duration {
	d := min(first<<min(n, 12), longest)
	return d - d/5 + rand.N(2*d/5)
}

// watch measures, and deletes what was sent long ago, until ctx ends.
func (s *sender) watch(ctx context.Context) {
	for round := 0; ctx.Err() == nil; round++ {
		now, err := s.state(ctx)
		if err == nil {
			s.metrics.set(now)
			if round%6 == 0 {
				err = s.forget(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("waiting events cannot be counted, or sent events cannot be deleted, will retry", "err", err)
		}
		retry.Sleep(ctx, 10*s.poll)
	}
}

// senderMetrics are the metrics of a sender.
type senderMetrics struct {
	posts                        *prometheus.CounterVec
	oldest, waiting, dead, other prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*senderMetrics, error) {
	f := metrics.With(r)
	m := &senderMetrics{
		f.CounterVec("webhook_posts_total", "Requests with an event by result: accepted, failed.", "result"),
		f.Gauge("webhook_oldest_waiting_seconds", "Age of the oldest event that was not accepted, by the database's clock; read every 10 s."),
		f.Gauge("webhook_waiting_events", "Events that were not accepted, counted up to 20,000; read every 10 s."),
		f.Gauge("webhook_dead_letters", "Events that were given up, counted up to 10,000; read every 10 s."),
		f.Gauge("webhook_other_reader", "1: another program took rows of outbox_events within the last ten minutes."),
	}
	for _, result := range []string{"accepted", "failed"} {
		m.posts.WithLabelValues(result) // a series must exist at 0, or its first increase is not seen
	}
	return m, f.Err()
}

func (m *senderMetrics) set(s state) {
	m.oldest.Set(s.Oldest.Seconds())
	m.waiting.Set(float64(s.Waiting))
	m.dead.Set(float64(s.Dead))
	m.other.Set(map[bool]float64{true: 1}[s.otherReader()])
}
