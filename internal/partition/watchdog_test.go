package partition

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

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
	s.serve(ctx, wire.Claim{Topic: "source", NoCommit: true, Done: func(int64, string) {}}, func(ctx context.Context, claim wire.Claim, pulse *Pulse) {
		claims = append(claims, claim)
		run(ctx, claim, pulse)
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
		if len(claims) != 2 || stuck != 1 {
			t.Fatalf("started %d times, stuck %d times; want 2 and 1", len(claims), stuck)
		}
		if c := claims[1]; c.Offset != 5 || c.Acked != "runs" || c.NoCommit {
			t.Errorf("started again from %d %q, fresh %v; want its commit", c.Offset, c.Acked, c.NoCommit)
		}
		if took := time.Since(begin); took > stuckAfter+15*time.Second {
			t.Errorf("it took %v", took)
		}
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
		if len(claims) != 1 || stuck != 0 {
			t.Errorf("started %d times, stuck %d times; want 1 and 0", len(claims), stuck)
		}
	})
}
