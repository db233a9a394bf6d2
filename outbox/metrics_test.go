package outbox

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r))(t)
	expect.Equal(t, r.Series("outbox_dispatched_total"), 2, "outboxes with a series at 0")
	// A dispatcher that has no row of an outbox to report must not look as if it served it.
	expect.Equal(t, r.Series("outbox_oldest_unpublished_seconds"), 0, "outboxes with an oldest row before they were read")
	m.oldest.WithLabelValues(string(wire.EventOutbox)).Set(1.5)
	m.rows.WithLabelValues(string(wire.EventOutbox)).Set(7)
	m.dispatched.WithLabelValues(string(wire.EventOutbox)).Add(3)
	for name, want := range map[string]float64{"outbox_oldest_unpublished_seconds": 1.5, "outbox_rows": 7, "outbox_dispatched_total": 3} {
		expect.Equal(t, r.Value(name, "outbox", "events"), want, "%s", name)
	}
}
