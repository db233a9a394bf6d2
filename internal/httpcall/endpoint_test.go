package httpcall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fill(n int, d time.Duration) *AdaptiveTimeout {
	w := &AdaptiveTimeout{}
	for range n {
		w.Add(d)
	}
	return w
}

func TestWindow_Limit(t *testing.T) {
	const ms = time.Millisecond
	mixed := fill(990, 100*ms)
	for range 10 {
		mixed.Add(2 * time.Second) // one in a hundred, which the p99 ignores
	}
	mixedMore := fill(989, 100*ms)
	for range 11 {
		mixedMore.Add(400 * ms)
	}
	forgotten := fill(1000, time.Second)
	for range 1000 {
		forgotten.Add(100 * ms)
	}
	for _, row := range []struct {
		name   string
		window *AdaptiveTimeout
		want   time.Duration
	}{
		{"before any call", &AdaptiveTimeout{}, 500 * ms},
		{"with 99 calls", fill(99, 20*ms), 500 * ms},
		{"with 100 calls", fill(100, 200*ms), 300 * ms},
		{"of fast calls", fill(100, ms), 50 * ms},
		{"of slow calls", fill(1000, 2500*ms), 3 * time.Second},
		{"with 1 in 100 slow", mixed, 150 * ms},
		{"with more than that slow", mixedMore, 600 * ms},
		{"of the last 1000 only", forgotten, 150 * ms},
	} {
		expect.Equal(t, row.window.Limit(), row.want, "the limit %s", row.name)
	}
}

func TestWindow_LimitStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 90, 950}).Draw(t, "fast calls before")
		w, all := fill(n, time.Millisecond), slices.Repeat([]time.Duration{time.Millisecond}, n)
		for range rapid.IntRange(0, 40).Draw(t, "calls") {
			limit := w.Limit()
			took := time.Duration(rapid.Int64Range(0, int64(4*time.Second)).Draw(t, "took"))
			if took >= limit {
				w.AddTimeout(limit)
				took = limit
				next := w.Limit()
				must.That(t, next >= limit, "after a timeout at %v the limit is %v", limit, next)
			} else {
				w.Add(took)
			}
			all = append(all, took)
			if next := w.Limit(); next < minLimit || next > maxLimit {
				t.Fatalf("the limit is %v", next)
			}
		}
		last := slices.Sorted(slices.Values(all[max(0, len(all)-windowCalls):]))
		if p99, ok := w.P99(); ok {
			within := 0
			for _, d := range last {
				if d <= p99 {
					within++
				}
			}
			must.That(t, within*100 >= len(last)*99, "%d of %d calls took at most %v, the p99", within, len(last), p99)
		}
	})
}

// A service that becomes a hundred times slower for good gets a longer timeout after a few calls, and soon its own timeout.
func TestWindow_ASlowerServiceGetsALongerTimeout(t *testing.T) {
	w, timeouts := fill(1000, 10*time.Millisecond), 0
	for range 50 {
		if limit := w.Limit(); limit <= time.Second {
			w.AddTimeout(limit)
			timeouts++
		} else {
			w.Add(time.Second)
		}
	}
	if timeouts > failuresToOpen+1 || w.base() != 1500*time.Millisecond || w.Limit() != w.base() {
		t.Errorf("%d calls timed out, and then the limit is %v", timeouts, w.Limit())
	}
}

type recorder struct {
	states  []string
	results map[string]int
}

func (r *recorder) Breaker(_ string, s string)               { r.states = append(r.states, s) }
func (r *recorder) CallLimit(string, time.Duration)          {}
func (r *recorder) CallsFailing(string, time.Time)           {}
func (r *recorder) Called(_, result string, _ time.Duration) { r.results[result]++ }

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func fine(context.Context) error     { return nil }

func TestEndpoint_RepeatedTimeoutsOpenTheBreakerAndOneSuccessClosesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{results: map[string]int{}}
		e := NewEndpoint("service", r)
		for range failuresToOpen {
			err := e.Do(t.Context(), hang)
			must.That(t, errors.Is(err, ErrTimeout) && errors.Is(err, orderclose.ErrUnavailable), "%v", err)
		}
		calls := 0
		count := func(context.Context) error { calls++; return nil }
		if err := e.Do(t.Context(), count); !errors.Is(err, ErrBreakerOpen) || !errors.Is(err, orderclose.ErrUnavailable) || calls != 0 {
			t.Fatalf("%v after %d calls; want the breaker open", err, calls)
		}
		time.Sleep(openFor + time.Millisecond)
		began := time.Now()
		if err := e.Do(t.Context(), hang); !errors.Is(err, ErrTimeout) || time.Since(began) != maxLimit {
			t.Fatalf("%v after %v; want one call with the longest timeout", err, time.Since(began))
		}
		if err := e.Do(t.Context(), count); !errors.Is(err, ErrBreakerOpen) {
			t.Fatal(err)
		}
		time.Sleep(openFor + time.Millisecond)
		if err := e.Do(t.Context(), count); err != nil || calls != 1 {
			t.Fatal(err, calls)
		}
		if err := e.Do(t.Context(), count); err != nil || calls != 2 {
			t.Fatal(err, calls)
		}
		want := []string{BreakerClosed, BreakerOpen, BreakerHalfOpen, BreakerOpen, BreakerHalfOpen, BreakerClosed}
		if !slices.Equal(r.states, want) || r.results[ResultTimeout] != failuresToOpen+1 || r.results[ResultRefused] != 2 || r.results[ResultOK] != 2 {
			t.Errorf("states %v, results %v", r.states, r.results)
		}
	})
}

func TestEndpoint_OnlyUnavailabilityOpensTheBreaker(t *testing.T) {
	no := errors.New("no")
	for _, row := range []struct {
		name string
		err  error
		want bool
	}{
		{"its refusals", no, false},
		{"its absence", orderclose.ErrUnavailable, true},
	} {
		e := NewEndpoint("service", nil)
		for range 2 * failuresToOpen {
			e.Do(t.Context(), func(context.Context) error { return row.err })
		}
		expect.Equal(t, errors.Is(e.Do(t.Context(), fine), ErrBreakerOpen), row.want, "%s: open", row.name)
	}
}

func TestEndpoint_ACancelledCallDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEndpoint("service", nil)
		for range 2 * failuresToOpen {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			err := e.Do(ctx, hang)
			must.That(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, orderclose.ErrUnavailable), "%v", err)
			cancel()
		}
		if err := e.Do(t.Context(), fine); err != nil || e.Limit() != firstLimit {
			t.Error(err, e.Limit())
		}
	})
}

type later time.Duration

func (l later) Error() string             { return "later" }
func (l later) RetryAfter() time.Duration { return time.Duration(l) }

func TestEndpoint_RespectsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct{ asks, gets time.Duration }{{20 * time.Second, 20 * time.Second}, {time.Hour, maxPause}} {
			e := NewEndpoint("service", nil)
			err := e.Do(t.Context(), func(context.Context) error { return later(row.asks) })
			must.That(t, errors.Is(err, later(row.asks)), "%v", err)
			time.Sleep(row.gets - time.Millisecond)
			if err := e.Do(t.Context(), fine); !errors.Is(err, ErrBreakerOpen) || !errors.Is(err, orderclose.ErrUnavailable) {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
			expect.NoError(t, e.Do(t.Context(), fine))
		}
	})
}

// failing records CallsFailing and Breaker.
type failing struct {
	NoMetrics
	since time.Time
	state string
}

func (f *failing) Breaker(_, state string) { f.state = state }

func (f *failing) CallsFailing(_ string, since time.Time) { f.since = since }

// An open breaker does not hide the cause, and failing calls are reported also while the breaker is closed.
func TestEndpoint_AnOpenBreakerReportsTheLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := &failing{}
		e, begin := NewEndpoint("close", metrics), time.Now()
		answer := errors.New("it answered 500")
		call := func() error { return e.Do(t.Context(), func(context.Context) error { return answer }) }
		for range 2 * failuresToOpen {
			err := call()
			must.That(t, !errors.Is(err, ErrBreakerOpen), "%v", err)
			time.Sleep(time.Second)
		}
		expect.That(t, metrics.since.Equal(begin), "calls fail since %v, want %v", metrics.since, begin)
		answer = fmt.Errorf("%w: it answered 404", orderclose.ErrUnavailable)
		for range failuresToOpen {
			_ = call()
		}
		if err := call(); !errors.Is(err, ErrBreakerOpen) || !strings.Contains(err.Error(), "it answered 404") {
			t.Errorf("%v does not contain the cause", err)
		}
		time.Sleep(openFor + time.Second)
		answer = nil
		if err := call(); err != nil || !metrics.since.IsZero() {
			t.Errorf("%v, calls fail since %v", err, metrics.since)
		}
	})
}

// Others may have closed the orders of a compensator since, so that it has nothing to call the service for.
func TestEndpoint_AFailureIsForgottenIfNoCallFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := &failing{}
		e := NewEndpoint("close", metrics)
		for range failuresToOpen {
			_ = e.Do(t.Context(), func(context.Context) error { return orderclose.ErrUnavailable })
		}
		time.Sleep(forgetAfter - time.Second)
		expect.That(t, !metrics.since.IsZero() && metrics.state == BreakerOpen, "forgotten early: %+v", metrics)
		time.Sleep(2 * time.Second)
		since, _ := e.Failing()
		expect.That(t, since.IsZero() && metrics.since.IsZero() && metrics.state == BreakerClosed, "not forgotten: %+v", metrics)
	})
}
