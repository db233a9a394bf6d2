package partition_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/testkit"
)

func TestMetrics_HaveTheTimeForWhichFetchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testkit.NewMetrics()
		m := partition.NewMetrics(metrics.With(r), "relay", "own_cause")
		want := func(relay, closer float64) {
			t.Helper()
			for stage, want := range map[string]float64{"relay": relay, "closer": closer} {
				if got := r.Value("fetch_failing_seconds", "stage", stage, "partition", "3"); got != want {
					t.Errorf("%s: %v s, want %v", stage, got, want)
				}
			}
		}
		m.FetchFailing("relay", "delay_5m", 3, time.Time{})
		m.FetchFailing("closer", "order-close", 3, time.Now())
		time.Sleep(90 * time.Second)
		want(0, 90)
		m.FetchFailing("closer", "order-close", 3, time.Time{})
		want(0, 0)
		if n := r.Series("fetch_failing_seconds"); n != 2 {
			t.Errorf("%d series, want 2", n)
		}
		m.FetchEnded("closer", "order-close", 3)
		if n := r.Series("fetch_failing_seconds"); n != 1 {
			t.Errorf("%d series after the end of one, want 1", n)
		}
		// A series must exist at 0, or increase() does not see its first increase.
		m.Claimed("relay", "delay_5m", 3)
		for _, name := range []string{"partition_stuck_total", "retention_lost_records_total"} {
			if n := r.Series(name); n != 1 {
				t.Errorf("%s has %d series, want one for the partition", name, n)
			}
		}
		causes := r.Series("dead_letters_total")
		m.DeadLettered("relay", "own_cause")
		m.DeadLettered("relay", "bad_due")
		if n := r.Series("dead_letters_total"); n != causes || causes < 2 {
			t.Errorf("%d causes, want the same %d as before", n, causes)
		}
		if n := r.Value("dead_letters_total", "stage", "relay", "cause", "bad_due"); n != 1 {
			t.Errorf("%v dead letters", n)
		}
	})
}
