package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline"
)

// sweeper starts a compensator without Kafka as a process whose clock is ahead.
func (r *rig) sweeper(name pipeline.Role, ahead time.Duration) {
	r.t.Helper()
	r.startAs(name, pipeline.Compensator, func(o *pipeline.Options) {
		o.Connections.Kafka, o.Now = nil, func() time.Time { return time.Now().Add(ahead) }
	})
}

// compensations returns the number of periods whose compensation has finished.
func (r *rig) compensations() (n int) {
	r.t.Helper()
	for _, h := range must.Get(r.db.SweepHours(r.t.Context(), r.cfg.Topics.Close, time.Time{}, 10_000))(r.t) {
		if h.State == overdue.Finished {
			n++
		}
	}
	return n
}

// TestSimulation_DaysOfSweeps: there are no relay and three compensators, one with a clock that is an hour off. Redis fails, and comes back empty. There
// is one sweep each hour, and every order is closed within the bound of a miss.
func TestSimulation_DaysOfSweeps(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig() // with a day of twenty-four sweeps, which lasts four hours
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.kafka.Close() // it requests metadata each second
		for name, ahead := range map[pipeline.Role]time.Duration{"a": 0, "b": time.Hour, "c": 0} {
			r.sweeper(name, ahead)
		}
		time.Sleep(10 * time.Minute)
		before := r.compensations()
		for i := range 5 {
			r.order(fmt.Sprint("o", i), "virtual", false)
			time.Sleep(30 * time.Minute)
		}
		time.Sleep(90 * time.Minute)
		expect.Equal(t, r.compensations()-before, 24, "sweeps in the first day")
		r.world.Redis.SetError("LOADING")
		time.Sleep(time.Hour)
		r.world.Redis.FlushAll()
		r.world.Redis.SetError("")
		before = r.compensations()
		r.stop("a") // two are enough
		r.order("later", "virtual", false)
		time.Sleep(4 * time.Hour)
		expect.Equal(t, r.compensations()-before, 24, "sweeps in the day after Redis came back")
		v := r.check(time.Now())
		expect.That(t, v.ByPath["sweep"] == 6 && v.Quantile(1) <= missBound, "closed %v, up to %v late; want 6 by the sweep, within %v",
			v.ByPath, v.Quantile(1), missBound)
	})
}

// wipe deletes topics with their commits and creates them again, as if Kafka had lost its disks.
func (r *rig) wipe(ctx context.Context, names ...string) {
	r.t.Helper()
	r.disturbed = true
	must.Do(r.t, drop.Topics(ctx, r.kafka, names...))
	time.Sleep(5 * time.Second)
	groups := scenario.Groups(r.cfg)
	for _, name := range names { // a real broker deletes the commits too
		if group := groups[name]; group != "" {
			_ = drop.Groups(ctx, r.kafka, group) // a group with members keeps its commits
		}
	}
	r.create(topics.Specs(r.cfg))
}
