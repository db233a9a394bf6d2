package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// TestSimulation_ACompensatorReportsOverdueRecords: no relay runs that could report them, and the
// first record of the partition is not due.
func TestSimulation_ACompensatorReportsOverdueRecords(t *testing.T) {
	t.Parallel()
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
		if got := r.overdueIn("delay_5m"); got < 110 || got > 120 {
			t.Errorf("delay_5m is overdue by %v s, want nearly two minutes", got)
		}
		if got := r.overdueIn("delay_1m"); got != 0 {
			t.Errorf("delay_1m is overdue by %v s, and it is empty", got)
		}
		if got := r.gauge("orderclose_waiting_unseen"); got != 0 {
			t.Errorf("%v were not seen", got)
		}
		if err := r.kafka.DeleteTopics(ctx, "delay_5m"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := r.gauge("orderclose_waiting_unseen"); got != 1 {
			t.Errorf("%v were not seen, want the topic that was deleted", got)
		}
	})
}

// overdueIn returns by how many seconds a topic is overdue, by the metrics of the role that was
// started last; negative if there is no such metric.
func (r *rig) overdueIn(topic string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "orderclose_waiting_overdue_seconds" && m.GetLabel()[0].GetValue() == topic {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}
