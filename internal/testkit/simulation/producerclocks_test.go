package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
)

// clockAhead returns the worst value of the metric of wrong clocks, of all roles.
func clockAhead(t *testing.T, registries []*prometheus.Registry) (worst time.Duration) {
	t.Helper()
	for _, r := range registries {
		families := must.Get(r.Gather())(t)
		for _, f := range families {
			if f.GetName() != "orderclose_producer_clock_ahead_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				if by := time.Duration(m.GetGauge().GetValue() * float64(time.Second)); by.Abs() > worst.Abs() {
					worst = by
				}
			}
		}
	}
	return worst
}

// TestSimulation_AWrongClockOfACheckoutIsFound, beside a checkout whose clock is right, wherever orders come from: the outbox, records that
// the checkout sends, and the orders' table alone.
func TestSimulation_AWrongClockOfACheckoutIsFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		ahead  func(since time.Duration) time.Duration
		within time.Duration
	}{
		{"an hour behind", func(time.Duration) time.Duration { return -time.Hour }, time.Minute},
		{"an hour ahead", func(time.Duration) time.Duration { return time.Hour }, time.Minute},
		{"20 s behind", func(time.Duration) time.Duration { return -20 * time.Second }, 6 * time.Minute},
		{"right, and an hour behind after two minutes", func(since time.Duration) time.Duration {
			if since >= 2*time.Minute {
				return -time.Hour
			}
			return 0
		}, 3 * time.Minute},
	} {
		for _, way := range []string{"outbox", "records", "table"} {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				simulate(t, testConfig(), func(ctx context.Context, r *rig) {
					r.disturbed = true
					if way == "outbox" {
						r.useOutbox()
					}
					var registries []*prometheus.Registry
					for _, role := range pipeline.AllRoles() {
						if way == "table" && role != pipeline.Compensator {
							continue
						}
						r.start(role)
						registries = append(registries, r.registry)
					}
					time.Sleep(time.Minute)
					began, found := time.Now(), time.Duration(0)
					for i := 0; found == 0 && time.Since(began) <= c.within; i++ {
						by := c.ahead(time.Since(began))
						for n, ahead := range []time.Duration{by, 0} {
							o := r.orderOf(fmt.Sprint("o", i, "-", n), time.Now().Add(ahead), "virtual")
							switch way {
							case "outbox":
								must.Do(t, r.shop.Orders.Checkout(ctx, func(tx *shopdb.Tx) error { return r.shop.Outbox.Add(ctx, orderclose.SQL(tx.SQL()), o) }))
							case "records":
								r.producerAhead = ahead
								must.Do(t, r.shop.Publish(ctx, o))
							}
						}
						time.Sleep(time.Second)
						if by == 0 {
							expect.Equal(t, clockAhead(t, registries), 0, "the difference while all clocks are right")
						}
						found = clockAhead(t, registries)
					}
					want := c.ahead(c.within)
					expect.That(t, (found-want).Abs() <= 6*time.Second, "%v after %v, want %v within %v", found, time.Since(began), want, c.within)
				})
			})
		}
	}
}

// TestSimulation_TheDatabaseAloneShowsAWrongClock to status and doctor: the orders of a checkout that is an hour behind, and of one that is ahead.
func TestSimulation_TheDatabaseAloneShowsAWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			simulate(t, testConfig(), func(ctx context.Context, r *rig) {
				r.disturbed = true
				r.startStable()
				p := ops.Pipeline{Config: r.cfg, Kafka: r.kafka, Store: r.db}
				for i := range 50 {
					for n, by := range []time.Duration{ahead, 0} {
						r.producerAhead = 0
						must.Do(t, r.shop.Publish(ctx, r.orderOf(fmt.Sprint("o", i, "-", n), time.Now().Add(by), "virtual")))
					}
					time.Sleep(time.Second)
				}
				found := must.Get(p.CheckoutClocks(ctx))(t)
				if ahead == 0 {
					expect.Same(t, found, nil, "what was found")
					return
				}
				must.That(t, len(found) == 1 && (found[0].Ahead > 0) == (ahead > 0) && found[0].Orders >= 40, "%+v", found)
			})
		})
	}
}
