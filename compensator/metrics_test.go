package compensator

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r, time.Hour, nil))(t)
	if n := r.Series("compensator_found_total"); n != len(Causes())+1 {
		t.Errorf("%d causes have a series at 0, want %d and not_closed", n, len(Causes()))
	}
	expect.Equal(t, r.Series("compensator_skipped_total"), 3, "reasons with a series at 0")
	expect.Equal(t, r.Series("compensator_rechecked_total"), 4, "results of a recheck with a series at 0")
	m.seconds.Observe(.5)
	m.Missed(Unpublished, 7)
	m.lastSweep.Set(metrics.Timestamp(now.Add(500 * time.Millisecond)))
	m.runningSince.Set(metrics.Timestamp(now))
	m.lockStuck.Set(zeroOrOne(true))
	expect.Equal(t, r.Value("compensator_found_total", "cause", "unpublished"), 7, "orders found unpublished")
	for name, want := range map[string]float64{
		"compensator_sweep_seconds": 1, "compensator_sweep_running_since_timestamp_seconds": 1.7e9,
		"compensator_last_success_timestamp_seconds": 1700000000.5, "compensator_period_seconds": 3600,
		"compensator_lock_available": 1, "compensator_lock_stuck": 1,
	} {
		expect.Equal(t, r.Value(name), want, "%s", name)
	}
}
