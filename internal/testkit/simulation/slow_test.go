package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// slowLateness is how late an order may be while each answer of a broker takes up to slowest: a hop, or a close, is a fetch, a
// look-up and two requests.
const slowLateness = 30 * time.Second

// TestSimulation_BrokersThatAreSlowForAnHourStopNothing: every wait for a broker is drawn, up to 3 s, and all connections are reset
// from time to time. The pipeline closes every order by itself, late by what the brokers are slow.
func TestSimulation_BrokersThatAreSlowForAnHourStopNothing(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.network = newNetwork(r.world.Dial)
		r.useOutbox()
		r.startStable()
		r.network.slowDown(slowest, 1)
		orders := 0
		for range 6 {
			for range 20 {
				r.order(fmt.Sprint("o", orders), []string{"virtual", "physical"}[orders%2], true)
				orders++
				time.Sleep(29 * time.Second)
			}
			r.network.reset()
		}
		time.Sleep(32 * time.Minute)
		r.network.slowDown(0, 0)
		time.Sleep(time.Minute)
		v := r.check(time.Now())
		expect.Equal(t, v.ByPath["pipeline"], orders, "orders that the pipeline closed")
		expect.AtMost(t, v.Quantile(1), slowLateness, "the latest order")
		t.Logf("lateness: median %v, latest %v", v.Quantile(0.5), v.Quantile(1))
	})
}
