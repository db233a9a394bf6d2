package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// slowLateness is how late an order may be while each answer of a broker takes up to slowest: a hop, or a close, is a fetch, a
// look-up and two requests. A close that takes slowestClose is late by less.
const (
	slowLateness = 30 * time.Second
	slowestClose = 10 * time.Second
)

// slowly returns a hook that waits for a drawn time, up to the most that a close of so many orders takes.
func slowly(drawn *rand.Rand, most func(orders int) time.Duration) func(context.Context, []orderclose.CloseRequest) error {
	var mu sync.Mutex
	return func(ctx context.Context, requests []orderclose.CloseRequest) error {
		mu.Lock()
		wait := time.Duration(drawn.Int64N(int64(most(len(requests)))))
		mu.Unlock()
		retry.Sleep(ctx, wait)
		return ctx.Err()
	}
}

// TestSimulation_WhatIsSlowForAnHourStopsNothing: every wait for a broker is drawn, up to 3 s, and all connections are reset from
// time to time; or every wait for a close, up to 10 s. The pipeline closes every order, late by what is slow.
func TestSimulation_WhatIsSlowForAnHourStopsNothing(t *testing.T) {
	for name, wait := range map[string]func(orders int) time.Duration{
		"brokers":                          nil,
		"closes":                           func(int) time.Duration { return slowestClose },
		"closes that grow with the orders": func(n int) time.Duration { return min(time.Duration(n)*2*time.Second, slowestClose) },
	} {
		t.Run(name, func(t *testing.T) {
			if wait != nil {
				ring.OnlyAll(t, "TestCloser_KeepsUpWithAnyStore")
			}
			seed, _ := ring.Seeds(1)
			atOnce := 1
			if wait != nil {
				atOnce = 4 // a close of several orders
			}
			simulate(t, testConfig(), func(ctx context.Context, r *rig) {
				r.network = newNetwork(r.world.Dial)
				if r.useOutbox(); wait != nil {
					r.store = hookedStore{r.db, slowly(rand.New(rand.NewPCG(seed, 2)), wait)}
				}
				r.startStable()
				if wait == nil {
					r.network.slowDown(slowest, seed)
				}
				orders := 0
				for range 6 {
					for range 20 {
						for range atOnce {
							r.order(fmt.Sprint("o", orders), []string{"virtual", "physical"}[orders%2], true)
							orders++
						}
						time.Sleep(29 * time.Second)
					}
					r.network.reset()
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
		})
	}
}
