package simulation

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// sweeper starts a compensator without Kafka as a process whose clock is ahead, and returns its
// metrics.
func (r *rig) sweeper(name string, ahead time.Duration) *prometheus.Registry {
	r.t.Helper()
	c := r.connect(name)
	registry := prometheus.NewRegistry()
	a := must.Get(pipeline.New(pipeline.Options{
		Config: r.cfg, Connections: clients.Clients{Store: c.Store, Redis: c.Redis}, Logger: r.logger, Registerer: registry, Missed: r.misses.add,
		Now: func() time.Time { return time.Now().Add(ahead) },
	}))(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, pipeline.Compensator) }()
	r.stops[pipeline.Role(name)] = func() {
		cancel()
		err := <-done
		expect.That(r.t, err == nil, "%s: %v", name, err)
		c.Close()
	}
	return registry
}

// sweeps returns the number of finished sweeps, by the metrics.
func (r *rig) sweeps(of ...*prometheus.Registry) (n int) {
	r.t.Helper()
	for _, registry := range of {
		families := must.Get(registry.Gather())(r.t)
		for _, f := range families {
			if f.GetName() == "orderclose_compensator_sweep_seconds" {
				n += int(f.GetMetric()[0].GetHistogram().GetSampleCount())
			}
		}
	}
	return n
}

// TestSimulation_DaysOfSweeps: there are no relay and three compensators, one with a clock that is
// an hour off. Redis fails, and comes back empty. There is one sweep each hour, and every order is
// closed within the bound of a miss.
func TestSimulation_DaysOfSweeps(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig() // with a day of twenty-four sweeps, which lasts four hours
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.kafka.Close() // it requests metadata each second
		all := []*prometheus.Registry{r.sweeper("a", 0), r.sweeper("b", time.Hour), r.sweeper("c", 0)}
		time.Sleep(10 * time.Minute)
		before := r.sweeps(all...)
		for i := range 5 {
			r.order(fmt.Sprint("o", i), "virtual", false)
			time.Sleep(30 * time.Minute)
		}
		time.Sleep(90 * time.Minute)
		expect.Equal(t, r.sweeps(all...)-before, 24, "sweeps in the first day")
		r.world.Redis.SetError("LOADING")
		time.Sleep(time.Hour)
		r.world.Redis.FlushAll()
		r.world.Redis.SetError("")
		before = r.sweeps(all...)
		r.stop("a") // two are enough
		r.order("later", "virtual", false)
		time.Sleep(4 * time.Hour)
		expect.Equal(t, r.sweeps(all...)-before, 24, "sweeps in the day after Redis came back")
		bound := missBound(r.cfg)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["sweep"] == 6 && v.Quantile(1) <= bound, "closed %v, up to %v late; want 6 by the sweep, within %v", v.ByPath, v.Quantile(1), bound)
	})
}

// TestSimulation_AfterDaysOffTheFirstSweepFindsEverything, and two sweeps at once change nothing.
func TestSimulation_AfterDaysOffTheFirstSweepFindsEverything(t *testing.T) {
	cfg := testConfig()
	cfg.Compensator.PageSize = 7
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.kafka.Close() // it requests metadata each second
		for i := range 100 {
			r.order(fmt.Sprint("o", i), "virtual", false)
			time.Sleep(40 * time.Minute)
		}
		r.world.Redis.SetError("LOADING") // both sweep at the same time
		a, b := r.sweeper("a", 0), r.sweeper("b", 0)
		time.Sleep(2 * time.Minute)
		if v := r.check(time.Now()); v.ByPath["sweep"] != 100 || r.sweeps(a, b) == 0 {
			t.Errorf("closed %v by %d sweeps", v.ByPath, r.sweeps(a, b))
		}
	})
}

// wipe deletes topics with their commits and creates them again, as if Kafka had lost its disks.
func (r *rig) wipe(ctx context.Context, topics ...string) {
	r.t.Helper()
	r.disturbed = true
	must.Do(r.t, r.kafka.DeleteTopics(ctx, topics...))
	time.Sleep(5 * time.Second)
	for _, group := range groupsOf(r.cfg, topics) { // a real broker deletes the commits too
		_ = r.kafka.DeleteGroups(ctx, group) // a group with members keeps its commits
	}
	r.create(ops.TopicSpecs(r.cfg))
}

func groupsOf(c *config.Config, topics []string) (groups []string) {
	of := map[string]string{c.Topics.Close: c.CloserGroup(), c.Topics.Replay: c.ReplayGroup(), c.Topics.Control: c.CompensatorGroup()}
	for _, b := range c.Buckets {
		of[b.Topic] = c.RelayGroup(b)
	}
	for _, topic := range topics {
		if group := of[topic]; group != "" {
			groups = append(groups, group)
		}
	}
	return groups
}

// TestSimulation_OrdersOfALostTopicAreScheduledAgain: a delay topic is deleted, or all of Kafka. Orders
// that are due soon close on time nevertheless, by the pipeline.
func TestSimulation_OrdersOfALostTopicAreScheduledAgain(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	for name, topics := range map[string]func(c *config.Config) []string{
		"a delay topic": func(c *config.Config) []string { return []string{c.Buckets[2].Topic} },
		"all of Kafka": func(c *config.Config) (all []string) {
			for _, spec := range ops.TopicSpecs(c) {
				all = append(all, spec.Name)
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, testConfig(), func(ctx context.Context, r *rig) {
				r.startAll()
				time.Sleep(90 * time.Second) // longer than the first start takes
				for i := range 20 {
					r.order(fmt.Sprint("o", i), "virtual", true)
				}
				time.Sleep(time.Minute)
				if name == "all of Kafka" { // processes with records in memory are gone too
					r.stop(pipeline.Relay)
					r.stop(pipeline.Closer)
					r.wipe(ctx, topics(r.cfg)...)
					r.start(pipeline.Relay)
					r.start(pipeline.Closer)
				} else {
					r.stop(pipeline.Relay)
					r.wipe(ctx, topics(r.cfg)...)
					r.start(pipeline.Relay)
				}
				time.Sleep(5 * time.Minute)
				v := r.verdict(time.Now())
				expect.That(t, v.ByPath["pipeline"] == 20 && v.Quantile(1) <= time.Second,
					"closed %v, up to %v late; want all 20 by the pipeline, on time", v.ByPath, v.Quantile(1))
			})
		})
	}
}

// TestSimulation_ALossUnderACheckoutWhoseClockIsAhead: its orders say that they were created after the
// loss was reported, and are scheduled again nevertheless.
func TestSimulation_ALossUnderACheckoutWhoseClockIsAhead(t *testing.T) {
	ring.NotShort(t)
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(90 * time.Second)
		r.producerAhead = 5 * time.Minute
		o := r.orderOf("o", time.Now().Add(r.producerAhead), "virtual")
		must.Do(t, r.shop.Publish(ctx, o))
		time.Sleep(time.Minute)
		r.stop(pipeline.Relay)
		var all []string
		for _, b := range r.cfg.Buckets {
			all = append(all, b.Topic)
		}
		r.wipe(ctx, all...)
		r.start(pipeline.Relay)
		time.Sleep(time.Until(o.Due.Add(time.Minute)))
		if v := r.verdict(time.Now()); v.ByPath["pipeline"] != 1 || v.Quantile(1) > time.Second {
			t.Errorf("closed %v, up to %v late; want it by the pipeline, on time", v.ByPath, v.Quantile(1))
		}
	})
}

// TestSimulation_ARecreatedControlTopicIsALoss, also while nothing is written to it. One of two
// compensators acts on it, once.
func TestSimulation_ARecreatedControlTopicIsALoss(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	for name, empty := range map[string]bool{"empty": true, "in use": false} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Compensator.Period = time.Hour // no other sweep
			simulate(t, cfg, func(ctx context.Context, r *rig) {
				r.startAll()
				time.Sleep(90 * time.Second)
				r.stop(pipeline.Outbox)
				r.stop(pipeline.Compensator)
				r.start(pipeline.Compensator)
				first := r.registry
				r.startAs("another", pipeline.Compensator)
				time.Sleep(90 * time.Second)
				if empty {
					r.stop(pipeline.Relay)
				}
				sweeps := func() int { return r.sweeps(first, r.registry) }
				for range 6 {
					before := sweeps()
					r.wipe(ctx, r.cfg.Topics.Control)
					time.Sleep(45 * time.Second)
					expect.Equal(t, sweeps()-before, 1, "sweeps within 45 s")
					time.Sleep(7 * time.Second)
				}
				before := sweeps()
				time.Sleep(2 * time.Minute)
				expect.Equal(t, sweeps()-before, 0, "sweeps after that")
			})
		})
	}
}

// TestSimulation_ALossWithoutACompensatorIsHandledLater, by the next compensator.
func TestSimulation_ALossWithoutACompensatorIsHandledLater(t *testing.T) {
	ring.NotShort(t)
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(90 * time.Second)
		r.stop(pipeline.Compensator)
		r.order("o", "virtual", true)
		r.stop(pipeline.Relay)
		r.wipe(ctx, r.cfg.Buckets[2].Topic)
		r.start(pipeline.Relay)
		time.Sleep(3 * time.Minute)
		r.start(pipeline.Compensator)
		time.Sleep(13 * time.Minute)
		v := r.verdict(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 1 && v.Quantile(1) <= time.Second, "closed %v, %v late", v.ByPath, v.Quantile(1))
		before, err := r.kafka.Position(ctx, r.cfg.CompensatorGroup(), r.cfg.Topics.Control, 0)
		expect.That(t, err == nil && before >= 1, "%v %v", before, err)
		// The loss is handled: no compensator acts on it again.
		r.stop(pipeline.Compensator)
		r.start(pipeline.Compensator)
		time.Sleep(time.Minute)
		expect.Equal(t, r.sweeps(r.registry), 0, "sweeps by a compensator that was started again")
		state, err := ops.NewControl(r.kafka, r.cfg.Topics.Control).Read(ctx, time.Now())
		byReason := map[wire.SweepReason]int{}
		for _, s := range state.Sweeps {
			byReason[s.Why]++
		}
		lost := slices.ContainsFunc(state.Losses, func(l ops.Loss) bool { return l.Topic == r.cfg.Buckets[2].Topic })
		if err != nil || byReason[wire.SweepLosses] != 2 || byReason[wire.SweepPeriod] == 0 || !lost {
			t.Errorf("the control topic has the sweeps %v, and %d losses: %v; want a sweep for the first start, one for the loss, and regular ones", byReason, len(state.Losses), err)
		}
	})
}
