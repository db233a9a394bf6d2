// Package webhook posts each event of outbox_events to a URL, for those who have no Kafka. A request is a CloudEvent in structured
// mode, signed as Standard Webhooks say (https://www.standardwebhooks.com).
//
// Run the role webhook beside sweeper, or beside closer and compensator; docs/webhook.md says what the receiver must do.
//
// Each process of the role takes rows out of outbox_events into its own table orderclose_webhook_events, in one transaction. It chooses the first
// event of orders whose time has come, leases it, posts it, and deletes it when it is accepted. So processes share the orders, and the events of
// an order are sent one after the other. An event that is not accepted waits, and with it the later events of its order.
// Other orders go on: repeats take no place from first attempts, and say nothing about the receiver to them.
//
// Each event is sent at least once: if a process is killed between the answer and the deletion, the event is sent again with the same
// webhook-id when its lease has passed.
//
//	new.go      what a Sender needs and refuses, and the check of status
//	webhook.go  the loop that sends, and the waits
//	post.go     one request: its signature, and what the answer means
//	events.go   the tables of the webhook
package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// parallel is how many first attempts a process has open at once, and how many repeats, each of another order. After as many failures
	// in a row that say nothing about the event, it sends one every probeEvery. Of a receiver that fails for four of ten orders, 16 in a row
	// practically never fail, but five do every two minutes.
	parallel, probeEvery = 16, 2 * time.Second
	// A request that runs for longer than slowAfter, and slowTimes the median of the last answers, gives its place to another one, so that a receiver that
	// hangs for some events gets the others. Of such requests a lane has maxSlow, with maxSlowBytes of events; when there are more, the oldest ends.
	slowAfter, slowTimes, maxSlow, maxSlowBytes = time.Second, 4, 48, 16 << 20
	// keepAnswers is how many answers count for the median.
	keepAnswers = 31
	// leaseMargin is how much longer than requestTimeout nobody else sends its event: the time to mark it.
	leaseMargin = 10 * time.Second
	// pollInterval is the time between two looks for new events. The time between two measurements is ten times as long.
	pollInterval = time.Second
	// stopTimeout is how long requests may go on when the process ends, which has 10 s, and markTimeout how long their outcomes may be marked.
	stopTimeout, markTimeout = 4 * time.Second, 7 * time.Second
	// An event that was not accepted waits for firstWait, and then for twice as long each time, up to longestWait.
	firstWait, longestWait = 5 * time.Second, time.Hour
	// longestPause bounds the time between two requests. A receiver may ask for it, but must not have worked for as long: otherwise some orders
	// may be the reason. It is also the wait of an event after 410, and bounds the waits while the receiver fails or has not worked for as long, so that
	// the events go soon when it works again.
	longestPause = time.Minute
)

// lane is the first attempts of events, or the repeats. Repeats take no place from first attempts, and do not count against the receiver for them.
type lane struct {
	inFlight []*attempt // the oldest first, but slow
	slow     []*attempt // the oldest first
	failures int        // in a row that say nothing about the event
	resumeAt time.Time  // no request begins before
}

const first, again = 0, 1

// attempt is a request that runs.
type attempt struct {
	event
	began time.Time
	end   func()
}

// moveSlow moves the requests out of inFlight that have run for longer than limit. Of more than maxSlow, or maxSlowBytes, the oldest end.
func (l *lane) moveSlow(limit time.Duration) {
	for len(l.inFlight) > 0 && time.Since(l.inFlight[0].began) > limit { //mutant:webhook-hanging-hold
		l.slow, l.inFlight = append(l.slow, l.inFlight[0]), l.inFlight[1:]
	}
	bytes := 0
	for i, a := range slices.Backward(l.slow) {
		bytes += len(a.body)
		if len(l.slow)-i > maxSlow || bytes > maxSlowBytes { //mutant:webhook-slow-unbounded
			a.end()
		}
	}
}

// remove removes the attempt of an event.
func (l *lane) remove(e event) {
	same := func(a *attempt) bool { return a.id == e.id && a.attempts == e.attempts }
	l.inFlight, l.slow = slices.DeleteFunc(l.inFlight, same), slices.DeleteFunc(l.slow, same)
}

// free returns how many requests may begin now.
func (l *lane) free() int {
	switch {
	case time.Now().Before(l.resumeAt):
		return 0
	case l.failures >= parallel: //mutant:webhook-floods-receiver
		return min(1, parallel-len(l.inFlight))
	}
	return parallel - len(l.inFlight)
}

// Sender sends events until its context ends. Make it with New. It belongs to one goroutine.
type Sender struct {
	table
	post    func(ctx context.Context, e event) outcome
	poll    time.Duration // pollInterval
	logger  *slog.Logger
	metrics *senderMetrics

	results chan outcome
	done    []outcome       // not marked yet
	lanes   [2]lane         // by event.lane
	worked  time.Time       // when the receiver last worked, or the process began
	works   time.Time       // since when it works, or the process began
	answers []time.Duration // how long the last ones took
}

// Run sends events until ctx ends, and then returns nil. Requests in flight then have stopTimeout.
func (s *Sender) Run(ctx context.Context) error {
	s.results, s.worked, s.works = make(chan outcome, 2*parallel), time.Now(), time.Now()
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
		for i := range s.lanes {
			s.lanes[i].moveSlow(s.slowLimit())
		}
		step, err := s.turn(marking, s.lanes[first].free(), s.lanes[again].free())
		if err != nil {
			if failing.ShouldLog() && ctx.Err() == nil {
				s.logger.Warn("events cannot be read or marked, will retry", "err", err)
			}
			wait = failing.NextBackOff()
		} else {
			failing.Reset()
		}
		for _, e := range step.events {
			l := &s.lanes[e.lane]
			ctx, end := context.WithCancel(posting)
			l.inFlight = append(l.inFlight, &attempt{e, time.Now(), end})
			if l.failures >= parallel {
				l.resumeAt = time.Now().Add(doubled(probeEvery, probeEvery, 0))
			}
			posts.Go(func() {
				defer time.AfterFunc(drainTimeout, end)
				began := time.Now()
				o := s.post(ctx, e)
				o.took = time.Since(began)
				s.results <- o
			})
		}
		if !step.more {
			s.await(ctx, wait)
		}
	}
	go func() {
		posts.Wait()
		close(s.results)
	}()
	for o := range s.results {
		s.settle(posting, o)
	}
	if _, err := s.turn(marking, 0, 0); err != nil { //mutant:webhook-unmarked
		s.logger.Warn("sent events cannot be deleted: the receiver gets them again", "events", len(s.done), "err", err)
	}
	return nil
}

// turn does a step, if there is something to do.
func (s *Sender) turn(ctx context.Context, first, again int) (step, error) {
	if len(s.done) == 0 {
		if any, err := s.any(ctx); !any || err != nil {
			return step{}, err
		}
	}
	done, err := s.step(ctx, s.done, first, again, requestTimeout+leaseMargin)
	if err != nil {
		return step{}, err
	}
	s.done = nil
	if done.others > 0 {
		s.logger.Error("another program takes rows of outbox_events: the receiver does not get them", "rows", done.others)
	}
	return done, nil
}

// await waits for an outcome, but not longer than d, and takes those that are there.
func (s *Sender) await(ctx context.Context, d time.Duration) {
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
func (s *Sender) settle(posting context.Context, o outcome) {
	l := &s.lanes[o.lane]
	l.remove(o.event)
	if errors.Is(o.err, context.Canceled) {
		if posting.Err() != nil {
			return
		}
		o.err = fmt.Errorf("no answer within %v, and more requests had none for long than may be open at once", o.took.Round(time.Second/10))
	}
	longest := longestWait
	switch {
	case o.works:
		s.works = s.worksSince()
		s.worked = time.Now()
		s.answers = append(s.answers[max(0, len(s.answers)-keepAnswers+1):], o.took)
		for i := range s.lanes {
			s.lanes[i].failures, s.lanes[i].resumeAt = 0, time.Time{}
		}
	case o.fails:
		if !s.worked.After(time.Now().Add(-o.took)) { // else it worked while the request waited
			l.failures++
		}
		if l.failures >= parallel || time.Since(s.worked) > longestPause {
			longest = longestPause
		}
		if l.failures >= parallel {
			if until := time.Now().Add(min(o.wait, longestPause)); time.Since(s.worked) > longestPause && until.After(l.resumeAt) {
				l.resumeAt = until //mutant:webhook-retry-after
			}
		}
	}
	if o.err == nil {
		s.metrics.posts.WithLabelValues("accepted").Inc()
	} else {
		s.metrics.posts.WithLabelValues("failed").Inc()
		longest = min(longest, max(firstWait, time.Since(s.works))) // no event is refused for longer //mutant:webhook-outage-counts
		o.wait = max(doubled(firstWait, longest, o.attempts-1), o.wait)
		s.logger.Warn("event not accepted, will retry", "order", o.order, "attempts", o.attempts, "wait", o.wait.Round(time.Second), "err", o.err)
	}
	s.done = append(s.done, o)
}

// worksSince returns since when the receiver works, if it does now: since the last time in which it may have accepted no event.
func (s *Sender) worksSince() time.Time {
	failures := max(s.lanes[first].failures, s.lanes[again].failures)
	if failures >= parallel || failures > 0 && time.Since(s.worked) > longestPause {
		return time.Now()
	}
	return s.works
}

// slowLimit returns after what time a request is slow.
func (s *Sender) slowLimit() time.Duration {
	if len(s.answers) == 0 {
		return slowAfter
	}
	sorted := slices.Sorted(slices.Values(s.answers))
	return max(slowAfter, slowTimes*sorted[len(sorted)/2])
}

// doubled returns the wait after failure n, from 0 on. It doubles up to longest, and differs by up to a fifth.
func doubled(first, longest time.Duration, n int) time.Duration {
	d := min(first<<min(n, 12), longest)
	return d - d/5 + rand.N(2*d/5)
}

// watch measures until ctx ends. While the database cannot be read, the age of the oldest event grows from the last value that was read.
func (s *Sender) watch(ctx context.Context) {
	since := time.Now() // when the oldest event that may wait was written
	for ctx.Err() == nil {
		now, err := s.state(ctx)
		if err == nil {
			s.metrics.set(now)
			since = time.Now().Add(-now.Oldest)
		} else if ctx.Err() == nil {
			s.metrics.oldest.Set(time.Since(since).Seconds())
			s.logger.Warn("waiting events cannot be counted, will retry", "err", err)
		}
		retry.Sleep(ctx, 10*s.poll)
	}
}

// senderMetrics are the metrics of a sender.
type senderMetrics struct {
	posts         *prometheus.CounterVec
	waiting       *prometheus.GaugeVec
	oldest, other prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*senderMetrics, error) {
	f := metrics.With(r)
	m := &senderMetrics{
		f.CounterVec("webhook_posts_total", "Requests with an event by result: accepted, failed.", "result"),
		f.GaugeVec("webhook_waiting_events", "Events that were not accepted by what they wait for: first_attempt, next_attempt, earlier_event of "+
			"their order. Counted up to 30,000; read every 10 s.", "for"),
		f.Gauge("webhook_oldest_waiting_seconds", "Age of the oldest event that was not accepted, by the database's clock; read every 10 s. While it cannot "+
			"be read, the age that such an event may have."),
		f.Gauge("webhook_other_reader", "1: another program took rows of outbox_events within the last ten minutes."),
	}
	for _, result := range []string{"accepted", "failed"} {
		m.posts.WithLabelValues(result) // a series must exist at 0, or its first increase is not seen
	}
	return m, f.Err()
}

func (m *senderMetrics) set(s state) {
	m.oldest.Set(s.Oldest.Seconds())
	m.waiting.WithLabelValues("first_attempt").Set(float64(s.Waiting - s.Refused - s.Behind))
	m.waiting.WithLabelValues("next_attempt").Set(float64(s.Refused))
	m.waiting.WithLabelValues("earlier_event").Set(float64(s.Behind))
	m.other.Set(map[bool]float64{true: 1}[s.otherReader()])
}
