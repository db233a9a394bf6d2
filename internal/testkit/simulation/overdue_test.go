package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// TestSimulation_ACompensatorReportsOverdueRecords: no relay runs that could report them, and the first record of the partition is not due.
func TestSimulation_ACompensatorReportsOverdueRecords(t *testing.T) {
	cfg := testConfig()
	cfg.Partitions = 1
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.start(pipeline.Compensator)
		now := time.Now()
		for i, due := range []time.Duration{time.Hour, 5 * time.Second} {
			o := orderclose.Order{ID: fmt.Sprint("o", i), CreatedAt: now, Due: now.Add(due)}
			r.publish(ctx, "delay_5m", wire.Record{Order: o, Release: o.Due})
		}
		time.Sleep(2*time.Minute + time.Second)
		expect.Equal(t, r.waiting("records", "delay_5m"), 2, "records that wait in delay_5m")
		expect.Between(t, r.waiting("farthest_due_seconds", "delay_5m"), 3470, 3490, "seconds until the farthest due time in delay_5m, an hour less two minutes")
		expect.Between(t, r.waiting("overdue_seconds", "delay_5m"), 110, 120, "the seconds that delay_5m is overdue by")
		for _, name := range []string{"records", "farthest_due_seconds", "overdue_seconds"} {
			expect.Equal(t, r.waiting(name, "delay_1m"), 0, "%s of delay_1m, which is empty", name)
		}
		expect.Equal(t, r.gauge("orderclose_waiting_unseen"), 0, "topics that were not seen")
		must.Do(t, drop.Topics(ctx, r.kafka, "delay_5m"))
		time.Sleep(time.Minute)
		expect.Equal(t, r.gauge("orderclose_waiting_unseen"), 1, "topics that were not seen after one was deleted")
		expect.Equal(t, r.waiting("records", "delay_5m"), -1, "records that wait in the topic that was deleted")
	})
}

// TestSimulation_TheLatenessIsMeasuredByTheListedCategories, of the pipeline and of the sweep.
func TestSimulation_TheLatenessIsMeasuredByTheListedCategories(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Compensator.Period, cfg.Delays.Default = 10*time.Minute, time.Minute
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		registries := map[pipeline.Role]*prometheus.Registry{}
		for _, role := range pipeline.AllRoles() {
			r.start(role)
			registries[role] = r.registry
		}
		time.Sleep(10 * time.Second)
		r.order("published", "virtual", true)
		r.order("other", "unheard-of", true)
		r.order("forgotten", "virtual", false)
		time.Sleep(18 * time.Minute) // the delay, the grace, and the period of sweeps
		for _, c := range []struct {
			role           pipeline.Role
			path, category string
			want           float64
		}{
			{pipeline.Closer, "pipeline", "virtual", 1}, {pipeline.Closer, "pipeline", "default", 1},
			{pipeline.Compensator, "sweep", "virtual", 1}, {pipeline.Compensator, "sweep", "default", 0},
		} {
			got := testkit.Metrics{Registry: registries[c.role]}.Value("close_end_to_end_lateness_seconds", "path", c.path, "category", c.category)
			expect.Equal(t, got, c.want, "orders of the category %s that were closed by the %s", c.category, c.path)
		}
	})
}

// waiting returns the value of a metric of a topic's waiting records, of the role that was started last; negative if there is no such metric.
func (r *rig) waiting(name, topic string) float64 {
	r.t.Helper()
	families := must.Get(r.registry.Gather())(r.t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "orderclose_waiting_"+name && m.GetLabel()[0].GetValue() == topic {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}
