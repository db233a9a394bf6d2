package compensator

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r, time.Hour, nil))(t)
	if n := r.Series("compensator_found_total"); n != len(Causes())+1 {
		t.Errorf("%d causes have a series at 0, want %d and not_closed", n, len(Causes()))
	}
	if n := r.Series("compensator_skipped_total"); n != 3 {
		t.Errorf("%d reasons have a series at 0, want 3", n)
	}
	if n := r.Series("compensator_rechecked_total"); n != 4 {
		t.Errorf("%d results of a recheck have a series at 0, want 4", n)
	}
	m.seconds.Observe(.5)
	m.Missed(Unpublished, 7)
	m.lastSweep.Set(metrics.Timestamp(now.Add(500 * time.Millisecond)))
	m.runningSince.Set(metrics.Timestamp(now))
	m.rescheduled.Add(4)
	m.lockStuck.Set(zeroOrOne(true))
	if n := r.Value("compensator_found_total", "cause", "unpublished"); n != 7 {
		t.Errorf("%v orders were found unpublished, want 7", n)
	}
	for name, want := range map[string]float64{
		"compensator_sweep_seconds": 1, "compensator_sweep_running_since_timestamp_seconds": 1.7e9, "compensator_scheduled_again_total": 4,
		"compensator_last_success_timestamp_seconds": 1700000000.5, "compensator_period_seconds": 3600,
		"compensator_lock_available": 1, "compensator_lock_stuck": 1,
	} {
		if got := r.Value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
