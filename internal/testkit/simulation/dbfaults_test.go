package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// simulateOn is simulate with a database that fails as faults says. The shop retries.
func simulateOn(t *testing.T, cfg *config.Config, faults *testkit.Faults, test func(ctx context.Context, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRigOn(t, cfg, pipelinetest.Options{Through: faults.Wrap})
		r.shop.Orders = scenario.Persistent{Orders: r.shop.Orders}
		defer r.close()
		test(t.Context(), r)
	})
}

// quickConfig returns a configuration with delays and periods of seconds.
func quickConfig() *config.Config {
	cfg := testConfig()
	cfg.Buckets = orderclose.Buckets{{Topic: "delay_1s", Length: time.Second}, {Topic: "delay_10s", Length: 10 * time.Second}}
	cfg.Delays = orderclose.Delays{Default: 20 * time.Second, ByCategory: map[string]time.Duration{"flash": 3 * time.Second, "virtual": 10 * time.Second}}
	cfg.Compensator.Period = 45 * time.Second
	return cfg
}

// TestSimulation_WhateverTheDatabaseAnswersThePromisesAreKept plays random orders while the database fails in every way, sometimes in several ways at
// once: at a connect, at the begin of a transaction, at any statement, and at a commit, which may be done or not. The name of a failing subtest has its
// seed, which plays the same again.
func TestSimulation_WhateverTheDatabaseAnswersThePromisesAreKept(t *testing.T) {
	t.Parallel()
	for seed := range databaseSeeds.inRing() {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			faults := testkit.NewFaults(uint64(seed))
			cfg := quickConfig()
			simulateOn(t, cfg, faults, func(ctx context.Context, r *rig) {
				r.disturbed = true
				r.useOutbox() // no dispatcher runs, so the rows stay
				for _, role := range []pipeline.Role{pipeline.Relay, pipeline.Closer, pipeline.Compensator} {
					r.start(role)
				}
				time.Sleep(5 * time.Second)
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					failAtRandom(faults, rand.New(rand.NewPCG(uint64(seed), 3)), stop)
				}()
				steps := scenario.Plan(scenario.Spec{Seed: uint64(seed), Orders: 40, Over: 40 * time.Second, SKUs: 20, Categories: []string{"flash", "virtual", "other"}})
				expect.NoError(t, r.shop.Run(ctx, time.Now(), steps))
				time.Sleep(time.Until(r.shop.LastDue().Add(5 * time.Second)))
				close(stop)
				<-done
				time.Sleep(time.Until(r.shop.LastDue().Add(missBound)))
				r.check(time.Now())
				r.checkEvents()
				if t.Failed() {
					t.Logf("struck: %v", faults.Struck())
				}
			})
		})
	}
}

// failAtRandom makes one to three faults strike for a while, then none for a while, until stop.
func failAtRandom(faults *testkit.Faults, random *rand.Rand, stop <-chan struct{}) {
	defer faults.Set(0)
	all := testkit.AllFaults()
	for {
		n := 1 + random.IntN(3)
		some := make([]testkit.Fault, n)
		for i := range some {
			some[i] = all[random.IntN(len(all))]
		}
		share := []float64{0.1, 0.5, 1}[random.IntN(3)]
		for _, phase := range []func(){func() { faults.Set(share, some...) }, func() { faults.Set(0) }} {
			phase()
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(random.Int64N(int64(8 * time.Second)))):
			}
		}
	}
}

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
			faults := testkit.NewFaults(1)
			simulateOn(t, quickConfig(), faults, func(ctx context.Context, r *rig) {
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
