package release

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r))(t)
	if calls, failing := r.Series("stock_release_total"), r.Series("calls_failing_since_timestamp_seconds"); calls != 5 || failing != 1 {
		t.Errorf("%d results and %d services have a series at 0, want 5 and 1", calls, failing)
	}
	m.Called(resultAlready, time.Millisecond)
	m.waiting.Add(2)
	m.CallsFailing(time.UnixMilli(1_700_000_000_000))
	if n := r.Value("stock_release_total", "result", "already"); n != 1 {
		t.Errorf("%v calls", n)
	}
	for name, want := range map[string]float64{"stock_release_seconds": 1, "stock_release_waiting": 2, "calls_failing_since_timestamp_seconds": 1.7e9} {
		if got := r.Value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
