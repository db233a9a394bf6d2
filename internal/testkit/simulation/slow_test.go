package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// slowLateness is how late an order may be while each answer of a broker takes up to slowest: a hop, or a close, is a fetch, a
// look-up and two requests.
const slowLateness = 30 * time.Second

// TestSimulation_BrokersThatAreSlowForAnHourStopNothing: every wait for a broker is drawn, up to 3 s, and all connections are reset from
// time to time. The pipeline closes every order, late by what is slow.
func TestSimulation_BrokersThatAreSlowForAnHourStopNothing(t *testing.T) {
	seed, _ := ring.Seeds(1)
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.network = newNetwork(r.world.Dial)
		r.useOutbox()
		r.startStable()
		r.network.slowDown(slowest, seed)
		const orders = 6 * 20
		for i := range orders {
			r.order(fmt.Sprint("o", i), []string{"virtual", "physical"}[i%2], true)
			time.Sleep(29 * time.Second)
			if i%20 == 19 {
				r.network.reset()
			}
		}
		time.Sleep(32 * time.Minute)
		r.network.slowDown(0, 0)
		time.Sleep(time.Minute)
		v := r.check(time.Now())
		// An order that is late by seconds may be closed by a sweep.
		expect.That(t, v.Closed() == orders && v.ByPath["pipeline"] >= orders*8/10, "%d orders, closed: %v", orders, v.ByPath)
		expect.AtMost(t, v.Quantile(1), slowLateness, "the latest order")
		t.Logf("lateness: median %v, latest %v", v.Quantile(0.5), v.Quantile(1))
	})
}
