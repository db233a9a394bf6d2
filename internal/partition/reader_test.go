package partition

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func testReader(ctx context.Context, log Log, r prometheus.Registerer) *reader {
	s := &Stage{Name: "test", Log: log, Metrics: NewMetrics(metrics.With(r), "test")}
	return newReader(ctx, s, wire.Claim{Topic: "t", Offset: 7}, slog.New(slog.DiscardHandler))
}

func TestReader_RetriesAFetchThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := testReader(t.Context(), &testkit.Log{Reads: func(at wire.Position) (wire.Fetched, error) {
			if tries++; tries < 4 {
				return wire.Fetched{}, errDown
			}
			return wire.Fetched{Next: at.Offset + 1}, nil
		}}, nil)
		r.start()
		r.start() // has no effect: a fetch is in flight
		f := <-r.fetched
		r.handleFetched(f)
		expect.That(t, tries == 4 && r.next == 8 && !r.busy, "%d tries, next %d, busy %v; want 4, 8, false", tries, r.next, r.busy)
	})
}

// The time is that of the first failure.
func TestReader_ReportsSinceWhenFetchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var away atomic.Bool
		m := testkit.NewMetrics()
		failing := func() float64 {
			since := m.Value("fetch_failing_since_timestamp_seconds", "stage", "test", "topic", "t")
			if since == 0 {
				return 0
			}
			return metrics.Timestamp(time.Now()) - since
		}
		r := testReader(ctx, &testkit.Log{Reads: func(at wire.Position) (wire.Fetched, error) {
			time.Sleep(time.Second) // like a fetch at the end of the log
			if away.Load() {
				return wire.Fetched{}, errDown
			}
			return wire.Fetched{Next: at.Offset}, nil
		}}, m)
		r.start()
		r.handleFetched(<-r.fetched)
		s := failing()
		expect.That(t, s == 0 && m.Series("fetch_failing_since_timestamp_seconds") == 1, "fails for %v s while fetches succeed", s)
		away.Store(true)
		r.start()
		time.Sleep(5 * time.Minute)
		expect.Equal(t, failing(), 299, "seconds of failure since the first failed fetch")
		away.Store(false)
		r.handleFetched(<-r.fetched)
		expect.Equal(t, failing(), 0, "seconds of failure after a fetch that succeeded")
		away.Store(true)
		r.start()
		cancel()
		r.wait()
		expect.That(t, m.Series("fetch_failing_since_timestamp_seconds") == 0 && len(r.fetched) == 0, "after the end there are a series or records")
	})
}

// Attempts are too many to log each.
func TestBackOff_LogsEveryTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pauses, logged, tries := retry.NewBackOff(), 0, 0
		for begin := time.Now(); time.Since(begin) < time.Minute; tries++ {
			if pauses.ShouldLog() {
				logged++
			}
			d := pauses.NextBackOff()
			must.That(t, d > 0 && d <= 750*time.Millisecond, "a pause of %v", d)
			time.Sleep(d)
		}
		expect.That(t, logged >= 20 && logged <= 31 && tries >= 80, "%d of %d failed attempts were logged in a minute", logged, tries)
	})
}

// watched serves a claim by run under a watchdog. It returns the claims that run got, and
// how often a loop counted as stuck.
func watched(t *testing.T, run func(ctx context.Context, claim wire.Claim, pulse *Pulse)) (claims []wire.Claim, stuck int) {
	t.Helper()
	m := testkit.NewMetrics()
	s := Stage{
		Name: "test", Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(metrics.With(m), "test"),
		OnHang: func(why string) { t.Errorf("abandoned: %s", why) },
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	claim := wire.Claim{Topic: "source", NoCommit: true, Done: func(int64, string) {}}
	s.serve(ctx, claim, func(ctx context.Context, claim wire.Claim, pulse *Pulse) (again bool) {
		claims = append(claims, claim)
		run(ctx, claim, pulse)
		return false
	})
	return claims, int(m.Value("partition_stuck_total", "stage", "test"))
}

func TestWatchdog_RestartsAHangingLoopFromItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		claims, stuck := watched(t, func(ctx context.Context, claim wire.Claim, _ *Pulse) {
			if claim.NoCommit {
				claim.Done(5, "runs")
				<-ctx.Done() // and no beat
			}
		})
		must.That(t, len(claims) == 2 && stuck == 1, "started %d times, stuck %d times; want 2 and 1", len(claims), stuck)
		c := claims[1]
		expect.That(t, c.Offset == 5 && c.Acked == "runs" && !c.NoCommit, "started again from %d %q, fresh %v; want its commit", c.Offset, c.Acked, c.NoCommit)
		expect.AtMost(t, time.Since(begin), stuckAfter+15*time.Second, "the time")
	})
}

// unreadLog is a log that nobody reads.
type unreadLog struct {
	slog.Handler
	test context.Context
}

func (l unreadLog) Handle(context.Context, slog.Record) error { <-l.test.Done(); return nil }

// Heartbeats go on, so nobody else serves the partition of a loop that hangs in the log: the process must end.
func TestWatchdog_SeesALoopThatHangsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan string, 1)
		s := Stage{Logger: slog.New(unreadLog{slog.NewTextHandler(io.Discard, nil), t.Context()}), Metrics: NewMetrics(metrics.With(nil), "test"),
			OnHang: func(why string) { hangs <- why }}
		go s.serve(t.Context(), wire.Claim{Done: func(int64, string) {}}, func(context.Context, wire.Claim, *Pulse) (again bool) {
			s.Logger.Warn("fetch failed, will retry")
			return false
		})
		time.Sleep(2 * stuckAfter)
		expect.Equal(t, len(hangs), 1, "hangs that end the process")
	})
}

// When the process continues, every loop has been silent for as long as it was stopped.
func TestWatchdog_AStoppedProcessIsNotAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claims, stuck := watched(t, func(_ context.Context, _ wire.Claim, pulse *Pulse) {
			time.Sleep(stuckAfter/6 - time.Second)
			pulse.Beat()
			pulse.last.Add(-int64(time.Hour))
			for range 60 {
				time.Sleep(2 * time.Second)
				pulse.Beat()
			}
		})
		expect.That(t, len(claims) == 1 && stuck == 0, "started %d times, stuck %d times; want 1 and 0", len(claims), stuck)
	})
}
