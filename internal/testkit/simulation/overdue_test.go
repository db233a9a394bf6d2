package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// TestSimulation_ACompensatorReportsOverdueRecords: no relay runs that could report them, and the
// first record of the partition is not due.
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
		if got := r.waiting("records", "delay_5m"); got != 2 {
			t.Errorf("%v records wait in delay_5m, want 2", got)
		}
		if got := r.waiting("farthest_due_seconds", "delay_5m"); got < 3470 || got > 3490 {
			t.Errorf("the farthest due time in delay_5m is in %v s, want an hour less two minutes", got)
		}
		if got := r.waiting("overdue_seconds", "delay_5m"); got < 110 || got > 120 {
			t.Errorf("delay_5m is overdue by %v s, want nearly two minutes", got)
		}
		for _, name := range []string{"records", "farthest_due_seconds", "overdue_seconds"} {
			if got := r.waiting(name, "delay_1m"); got != 0 {
				t.Errorf("%s of delay_1m is %v, and it is empty", name, got)
			}
		}
		if got := r.gauge("orderclose_waiting_unseen"); got != 0 {
			t.Errorf("%v were not seen", got)
		}
		must.Do(t, r.kafka.DeleteTopics(ctx, "delay_5m"))
		time.Sleep(time.Minute)
		if got := r.gauge("orderclose_waiting_unseen"); got != 1 {
			t.Errorf("%v were not seen, want the topic that was deleted", got)
		}
		if got := r.waiting("records", "delay_5m"); got != -1 {
			t.Errorf("%v records wait in the topic that was deleted", got)
		}
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
			if got != c.want {
				t.Errorf("%v orders of the category %s were closed by the %s, want %v", got, c.category, c.path, c.want)
			}
		}
	})
}

// waiting returns the value of a metric of a topic's waiting records, of the role that was started
// last; negative if there is no such metric.
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
