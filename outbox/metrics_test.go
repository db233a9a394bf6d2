package outbox

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r))(t)
	if n := r.Series("outbox_dispatched_total"); n != 2 {
		t.Errorf("%d outboxes have a series at 0, want 2", n)
	}
	// A dispatcher that has no row of an outbox to report must not look as if it served it.
	if n := r.Series("outbox_oldest_unpublished_seconds"); n != 0 {
		t.Errorf("%d outboxes have an oldest row before they were read", n)
	}
	m.oldest.WithLabelValues(string(wire.EventOutbox)).Set(1.5)
	m.rows.WithLabelValues(string(wire.EventOutbox)).Set(7)
	m.dispatched.WithLabelValues(string(wire.EventOutbox)).Add(3)
	for name, want := range map[string]float64{"outbox_oldest_unpublished_seconds": 1.5, "outbox_rows": 7, "outbox_dispatched_total": 3} {
		if got := r.Value(name, "outbox", "events"); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
