package realtest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// closeMany creates overdue orders and closes them, so that as many events wait.
func (r *rig) closeMany(orders, batch int) {
	r.t.Helper()
	var closing sync.WaitGroup
	for first := 0; first < orders; first += batch {
		closing.Go(func() {
			var requests []orderclose.CloseRequest
			for i := range batch {
				due := time.Now().Add(-time.Second).Truncate(time.Millisecond)
				o := orderclose.Order{ID: fmt.Sprintf("many-%05d", first+i), CreatedAt: due, Due: due}
				expect.NoError(r.t, r.shop.Orders.CreateOrder(r.t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(i % skus), Quantity: 1}}))
				requests = append(requests, orderclose.CloseRequest{OrderID: o.ID})
			}
			for len(requests) > 0 && r.t.Context().Err() == nil {
				outcomes, err := r.store.CloseOrders(r.t.Context(), orderclose.PathTouch, requests)
				expect.NoError(r.t, err)
				requests = requests[:0]
				for _, o := range outcomes {
					if o.Verdict == orderclose.Contended { // another of these transactions locks its stock
						requests = append(requests, orderclose.CloseRequest{OrderID: o.OrderID})
					}
				}
			}
		})
	}
	closing.Wait()
}

// dispatched waits until that many more events are published, or none is left.
func (r *rig) dispatched(more int) {
	r.t.Helper()
	begin := -1
	r.eventually(func() error {
		left := r.count("SELECT COUNT(*) FROM outbox_events")
		if begin = max(begin, left); left == 0 {
			return nil
		}
		return atLeast("events are published", begin-left, more)
	})
}

// Two dispatchers are killed while both outboxes have rows, checkouts add rows to one, and closes to the other. Late orders
// have to be closed by the pipeline, since no sweep runs.
func TestReal_KillingADispatcherLosesNothing(t *testing.T) {
	eachDatabase(t, killingADispatcherLosesNothing)
}

func killingADispatcherLosesNothing(t *testing.T, servers environ.Servers) {
	r := newRig(t, servers)
	r.disturbed = true
	r.useOutbox()
	many := inRing(1000, 3000)
	r.closeMany(many, 100)
	const waiting = 6000 // several batches
	for i := range waiting {
		now := time.Now()
		o := r.shop.Producer.Order(fmt.Sprintf("many-%05d", i), now, "physical") // closed already: harmless
		must.Do(t, r.shop.Outbox.Add(t.Context(), orderclose.SQL(r.store.DB()), orderclose.Order{ID: o.ID, CreatedAt: now, Due: o.Due}))
	}
	r.start("relay", "closer", "outbox-1", "outbox-2")
	r.load(11, 300, 10*time.Second, func() {
		random := rand.New(rand.NewPCG(11, 11))
		for i := range 16 {
			part := fmt.Sprint("outbox-", 1+i%2)
			r.dispatched(10 + random.IntN(20)) // it is publishing
			r.signal(part, syscall.SIGKILL)
			r.start(part)
		}
	})
	r.drain()
	r.settle()
	r.drain()
	v := r.check()
	if n := len(r.shop.Added()); n < 100 || len(r.shop.RolledBack()) == 0 {
		t.Errorf("%d orders were added, %d rolled back", n, len(r.shop.RolledBack()))
	}
	expect.That(t, v.ByPath["sweep"] == 0 && v.Closed() >= many && v.Events == v.Closed(), "closed by path %v, %d events", v.ByPath, v.Events)
	t.Logf("%d records of %d events", r.sent(r.cfg.Topics.Events), v.Events)
}
