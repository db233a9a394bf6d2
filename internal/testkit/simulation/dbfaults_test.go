package simulation

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// TestSimulation_EachDatabaseFaultIsSurvived: each fault strikes alone, at every operation, for half a minute. Afterwards the pipeline closes
// everything, with the sweep off, and no order has used up an attempt.
func TestSimulation_EachDatabaseFaultIsSurvived(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	byName := map[string][]testkit.Fault{}
	for _, f := range testkit.AllFaults() {
		byName[f.Name] = append(byName[f.Name], f)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := testkit.NewFaults(1)
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig()
				cfg.Buckets = orderclose.Buckets{{Topic: "delay_1s", Length: time.Second}, {Topic: "delay_10s", Length: 10 * time.Second}}
				cfg.Delays.ByCategory["virtual"] = 10 * time.Second
				r := newRigOn(t, cfg, pipelinetest.Options{Through: faults.Wrap})
				defer r.close()
				r.start(pipeline.Relay)
				r.start(pipeline.Closer)
				time.Sleep(5 * time.Second)
				for i := range 20 {
					r.order(fmt.Sprintf("o%02d", i), "virtual", true)
				}
				time.Sleep(5 * time.Second)
				faults.Set(1, byName[name]...)
				time.Sleep(30 * time.Second)
				struck := faults.Struck()[name]
				faults.Set(0)
				time.Sleep(2 * time.Minute)
				v := r.check(time.Now())
				expect.That(t, v.ByPath["pipeline"] == 20 && struck != 0, "the fault struck %d times; closed %v, want all 20 by the pipeline", struck, v.ByPath)
				r.checkEvents()
				n := r.rows("SELECT COUNT(*) FROM receipts WHERE attempts <> 0")
				expect.That(t, n == 0, "%d orders were closed at a later attempt: the fault has used up the first", n)
			})
		})
	}
}

// ofCloses is a condition on outbox_events: the event is of no payment.
const ofCloses = ` WHERE payload NOT LIKE '%"order.paid%'`

// checkEvents requires that the outbox has one event of each closed order, and no other event but those for payments. No dispatcher may have run.
func (r *rig) checkEvents() {
	r.t.Helper()
	closed := r.rows("SELECT COUNT(*) FROM receipts")
	all := r.rows("SELECT COUNT(*) FROM outbox_events" + ofCloses)
	right := r.rows("SELECT COUNT(DISTINCT e.order_id) FROM outbox_events e JOIN receipts r ON r.order_id = e.order_id" + ofCloses)
	expect.That(r.t, all == closed && right == closed, "%d orders are closed, %d events of %d of them are in the outbox", closed, all, right)
}

// rows returns the number that a query selects.
func (r *rig) rows(query string) (n int) {
	r.t.Helper()
	must.Do(r.t, r.world.DB().QueryRowContext(r.t.Context(), query).Scan(&n))
	return n
}
