package payment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// closedOrders is a ClosedStore and an Asker: closed orders, and what the provider answers on each.
type closedOrders struct {
	mu        sync.Mutex
	steps     []time.Duration
	closed    []orderclose.Outcome
	positions map[time.Duration]time.Time
	verdicts  map[string]orderclose.Verdict // default: AlreadyClosed
	down      bool                          // the provider answers nothing
	broken    string                        // it answers nothing on this order
	silent    time.Time                     // since when it has answered nothing
	asked     map[string][]time.Duration    // by order: how long after its close it was asked about
	questions int
	slow      time.Duration // each question takes so long, whatever its context says
	denied    error         // of a read
}

func newClosedOrders() *closedOrders {
	steps := []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour}
	return &closedOrders{steps: steps, positions: map[time.Duration]time.Time{}, verdicts: map[string]orderclose.Verdict{}, asked: map[string][]time.Duration{}}
}

func (s *closedOrders) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, orderclose.Outcome{OrderID: id, At: time.Now().Truncate(time.Millisecond)})
}

func (s *closedOrders) ClosedBetween(_ context.Context, from, to time.Time, after string, limit int) (page []orderclose.Outcome, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.closed, func(a, b orderclose.Outcome) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.OrderID, b.OrderID))
	})
	for _, o := range s.closed {
		if !o.At.Before(from) && o.At.Before(to) && (o.At.After(from) || o.OrderID > after) && len(page) < limit {
			page = append(page, o)
		}
	}
	return page, nil
}

func (s *closedOrders) Rechecked(_ context.Context, _ string, step time.Duration) (until, now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.positions[step], time.Now().Truncate(time.Millisecond), s.denied
}

func (s *closedOrders) KeepRechecked(_ context.Context, _ string, step time.Duration, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.positions[step] = until
	return nil
}

func (s *closedOrders) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) (outcomes []orderclose.Outcome, _ error) {
	time.Sleep(s.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions++
	answered := false
	for _, r := range requests {
		verdict := cmp.Or(s.verdicts[r.OrderID], orderclose.AlreadyClosed)
		if s.down || r.OrderID == s.broken {
			verdict = orderclose.PaymentPending
		} else {
			answered = true
			i := slices.IndexFunc(s.closed, func(o orderclose.Outcome) bool { return o.OrderID == r.OrderID })
			s.asked[r.OrderID] = append(s.asked[r.OrderID], time.Since(s.closed[i].At))
		}
		outcomes = append(outcomes, orderclose.Outcome{OrderID: r.OrderID, Verdict: verdict})
	}
	if answered {
		s.silent = time.Time{}
	} else if s.silent.IsZero() {
		s.silent = time.Now()
	}
	return outcomes, nil
}

func (s *closedOrders) Failing() (since time.Time, cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent, "it is down"
}

// change sets fields that processes use.
func (s *closedOrders) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// count returns how many orders were asked about, how often one of them was, and how many questions there were.
func (s *closedOrders) count(id string) (orders, times, questions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked), len(s.asked[id]), s.questions
}

// times returns after which steps an order was asked about. A question may be two minutes late.
func (s *closedOrders) times(t *testing.T, id string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := make([]time.Duration, len(s.asked[id]))
	for i, d := range s.asked[id] {
		steps[i] = d.Truncate(10 * time.Minute)
		expect.That(t, d-steps[i] <= 2*time.Minute, "%s: asked about %v after its close", id, d)
	}
	return fmt.Sprint(steps)
}

// rechecks counts what processes that ask again have found.
type rechecks struct {
	mu      sync.Mutex
	results map[string]int
	behind  time.Duration
}

func (c *rechecks) Rechecked(result string, orders int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results[result] += orders
}

func (c *rechecks) RecheckBehind(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = d
}

// expect expects how many orders had each result, and that the questions are late by the given seconds.
func (c *rechecks) expect(t *testing.T, found, none, unknown, givenUp int, least, most float64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := []int{c.results[RecheckFound], c.results[RecheckNone], c.results[RecheckUnknown], c.results[RecheckGivenUp]}
	expect.Same(t, got, []int{found, none, unknown, givenUp}, "late payments, orders without one, unknown ones and those given up")
	expect.Between(t, c.behind.Seconds(), least, most, "the seconds that the questions are behind")
}

// inProcesses runs a test in a bubble. It may start processes that ask again in so large questions, at a rate for each second.
func inProcesses(t *testing.T, test func(t *testing.T, s *closedOrders, c *rechecks, start func(batch, perSecond int) (stop func()))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, c := newClosedOrders(), &rechecks{results: map[string]int{}}
		var stops []func()
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		test(t, s, c, func(batch, perSecond int) func() {
			stop := sync.OnceFunc(startRecheck(t, RecheckOptions{Store: s, Asker: s, Steps: s.steps, Batch: batch, Rate: perSecond, Metrics: c}))
			stops = append(stops, stop)
			return stop
		})
	})
}

// startRecheck starts a process that asks again.
func startRecheck(t *testing.T, o RecheckOptions) (stop func()) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	r := must.Get(NewRecheck(o))(t)
	return testkit.Start(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			began := time.Now()
			next := r.Do(ctx)
			expect.AtMost(t, time.Since(began), 4*time.Minute, "the time of a turn, of which five minutes count as a hang")
			retry.Sleep(ctx, next)
		}
		r.Idle()
		return nil
	})
}

func TestRecheck_AsksAboutEachOrderAfterEachStep(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, c *rechecks, start func(batch, perSecond int) (stop func())) {
		s.close("before the first start")
		time.Sleep(30 * time.Minute)
		start(3, 100)
		time.Sleep(time.Minute)
		for i := range 10 { // at one moment
			s.close(fmt.Sprint("order-", i))
		}
		s.change(func() {
			s.verdicts["order-3"], s.verdicts["order-4"] = orderclose.AlreadyPaid, orderclose.PaymentPending
		})
		time.Sleep(25 * time.Hour)
		for i := range 10 {
			expect.Equal(t, s.times(t, fmt.Sprint("order-", i)), "[10m0s 1h0m0s 24h0m0s]", "order-%d: the times after its close when it was asked about", i)
		}
		expect.Equal(t, s.times(t, "before the first start"), "[1h0m0s 24h0m0s]", "the times after its close when the first order was asked about")
		c.expect(t, 3, 8*3+2, 2, 1, 0, 0)
	})
}

// No compensator runs for two days, and another one goes on.
func TestRecheck_CatchesUpWhatWasMissed(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, _ *rechecks, start func(batch, perSecond int) (stop func())) {
		stop := start(100, 100)
		time.Sleep(time.Minute)
		s.close("a")
		time.Sleep(11 * time.Minute)
		stop()
		s.close("b")
		time.Sleep(48 * time.Hour)
		start(100, 100)
		time.Sleep(2 * time.Minute)
		for _, id := range []string{"a", "b"} {
			_, times, _ := s.count(id)
			expect.That(t, times == 3, "asked %d times about %s, want 3", times, id)
		}
	})
}

// The database's clock was five hours ahead for a while.
func TestRecheck_AClockThatWasSetBackHidesNoOrder(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, _ *rechecks, start func(batch, perSecond int) (stop func())) {
		for _, step := range s.steps {
			s.positions[step] = time.Now().Add(5 * time.Hour)
		}
		start(100, 100)
		time.Sleep(time.Minute)
		s.close("a")
		time.Sleep(25 * time.Hour)
		expect.Equal(t, s.times(t, "a"), "[10m0s 1h0m0s 24h0m0s]", "the times after the close when it was asked about")
	})
}

// A provider that answers nothing costs no order a step, also not the last one.
func TestRecheck_WaitsForAProviderThatAnswersNothing(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, c *rechecks, start func(batch, perSecond int) (stop func())) {
		start(100, 100)
		time.Sleep(time.Minute)
		s.close("a")
		s.change(func() { s.verdicts["a"], s.down = orderclose.AlreadyPaid, true })
		time.Sleep(30 * time.Hour)
		_, _, questions := s.count("a")
		c.expect(t, 0, 0, 0, 0, 3600, math.Inf(1))
		expect.AtMost(t, questions, 3*31*60, "questions in 30 hours")
		s.change(func() { s.down = false })
		time.Sleep(2 * time.Minute)
		_, times, _ := s.count("a")
		expect.That(t, times == 3, "asked %d times once the provider answers, want 3", times)
	})
}

// The provider fails on one order, which is alone on its page at each step.
func TestRecheck_AnOrderThatTheProviderFailsOnHoldsUpNoOther(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, c *rechecks, start func(batch, perSecond int) (stop func())) {
		s.broken = "broken"
		start(1, 100)
		time.Sleep(time.Minute)
		for i := range 60 {
			s.close(fmt.Sprint("order-", i))
			if i == 10 {
				s.close("broken")
			}
			time.Sleep(time.Hour)
		}
		for i := range 60 - 25 {
			_, times, _ := s.count(fmt.Sprint("order-", i))
			expect.That(t, times == 3, "order-%d was asked about %d times", i, times)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		expect.That(t, c.results[RecheckUnknown] == 2 && c.results[RecheckGivenUp] == 1, "%v", c.results)
	})
}

func TestRecheck_HoldsItsRate(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, c *rechecks, start func(batch, perSecond int) (stop func())) {
		start(100, 1)
		time.Sleep(time.Minute)
		for i := range 20_000 {
			s.close(fmt.Sprintf("order-%05d", i))
		}
		time.Sleep(3*time.Hour + 10*time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		asked := c.results[RecheckNone]
		expect.That(t, asked >= 3*3600-100 && asked <= 3*3600+200, "%d orders asked about in three hours at one per second", asked)
		_, steps, _ := s.count("order-03000")
		expect.That(t, steps == 2, "%d steps are done for order 3000, want both: no step waits for another", steps)
	})
}

// All steps of one turn would take longer than a task may.
func TestRecheck_ManySlowStepsAreNoHang(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, _ *rechecks, start func(batch, perSecond int) (stop func())) {
		for s.slow = 9 * time.Second; len(s.steps) < 40; {
			s.steps = append(s.steps, 24*time.Hour+time.Duration(len(s.steps))*time.Second)
		}
		start(100, 100)
		time.Sleep(time.Minute)
		s.close("a")
		time.Sleep(25 * time.Hour)
		_, times, _ := s.count("a")
		expect.Equal(t, times, 40, "questions about an order")
	})
}

// An alert looks at the metric: nobody knows how many orders are left.
func TestRecheck_IsBehindWhileItsReadsFail(t *testing.T) {
	inProcesses(t, func(t *testing.T, s *closedOrders, c *rechecks, start func(batch, perSecond int) (stop func())) {
		s.denied = errors.New("SELECT is denied")
		start(100, 100)
		time.Sleep(2 * time.Hour)
		c.expect(t, 0, 0, 0, 0, 7000, 7300)
	})
}
