package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
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
	of := map[string]string{c.Topics.Close: c.CloserGroup(), c.Topics.Replay: c.ReplayGroup()}
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
