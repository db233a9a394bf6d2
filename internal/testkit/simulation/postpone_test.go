package simulation

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/pipeline"
)

// postpone postpones the orders that are due before a time, as orderclose postpone does. between runs
// after the plan was made.
func (r *rig) postpone(ctx context.Context, before time.Time, by string, between func()) ops.PostponeOutcome {
	r.t.Helper()
	var file bytes.Buffer
	plan := ops.PostponePlan{Database: "here", Table: "orders", DueBefore: before, By: by}
	must.Get(ops.PlanPostpone(ctx, r.db, plan, r.cfg.MaxDelay, &file))(r.t)
	between()
	result := must.Get(ops.ApplyPostpone(ctx, r.db, bytes.NewReader(file.Bytes()), plan, r.cfg.MaxDelay, nil))(r.t)
	return result
}

// TestSimulation_APostponedOrderClosesWhenItIsDueThen wherever its record is when the order is
// postponed by 20 minutes: in a bucket, in the memory of a closer, in the close topic, in the outbox,
// or nowhere. The sweeps in between do not close it.
func TestSimulation_APostponedOrderClosesWhenItIsDueThen(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Compensator.Period = 5 * time.Minute
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true // the closer does not run for a while
		r.useOutbox()
		for _, role := range []pipeline.Role{pipeline.Relay, pipeline.Closer, pipeline.Compensator} {
			r.start(role)
		}
		time.Sleep(10 * time.Second)
		begin := time.Now()
		nothing := func() {}
		arrived := r.orderOf("arrived", begin.Add(-3*time.Minute), "virtual") // virtual: 5 minutes
		must.Do(t, r.shop.Publish(ctx, arrived))
		r.order("bucket", "virtual", true)
		r.order("nowhere", "virtual", false)
		r.order("paid", "virtual", true)
		r.add("outbox", 5*time.Minute, nil)
		r.order("memory", "virtual", true)
		r.exec("UPDATE orders SET expire_at = expire_at + 8000 WHERE id = 'memory'")

		time.Sleep(time.Minute)
		r.stop(pipeline.Closer)
		r.stop(pipeline.Compensator) // it would close the order that arrived
		time.Sleep(90 * time.Second)
		expect.That(t, r.inTopic(r.cfg.Topics.Close) != 0, "no record is in the close topic")
		expect.Equal(t, r.postpone(ctx, begin.Add(3*time.Minute), "20m", nothing).Postponed, 1, "postponed, the order that arrived")
		r.start(pipeline.Closer)
		r.start(pipeline.Compensator)
		time.Sleep(time.Minute)
		p := r.postpone(ctx, begin.Add(5*time.Minute+4*time.Second), "20m", func() {
			must.Get(r.shop.Orders.Pay(ctx, "paid", "p"))(t)
		})
		expect.That(t, p.Postponed == 3 && p.NotOpen == 1, "%+v; want three postponed and one paid", p)
		r.start(pipeline.Outbox)
		time.Sleep(time.Until(begin.Add(5*time.Minute + 3*time.Second)))
		expect.Equal(t, r.postpone(ctx, begin.Add(5*time.Minute+10*time.Second), "20m", nothing).Postponed, 1, "postponed, the order in the memory of the closer")

		time.Sleep(time.Until(begin.Add(21 * time.Minute)))
		if late := r.late(); len(late) != 0 {
			t.Errorf("closed before their new due times: %v", late)
		}
		time.Sleep(11 * time.Minute) // a sweep closes the order without a record
		v := r.check(time.Now())
		late := r.late()
		expect.That(t, strings.HasPrefix(late["nowhere"], string(orderclose.PathSweep)), "the order without a record: %q", late["nowhere"])
		delete(late, "nowhere")
		for id, how := range late {
			if path, ms, _ := strings.Cut(how, " "); path == string(orderclose.PathPipeline) {
				if by, err := time.ParseDuration(ms); err == nil && by < time.Second {
					late[id] = "on time"
				}
			}
		}
		expect.Same(t, late, map[string]string{"arrived": "on time", "bucket": "on time", "outbox": "on time", "memory": "on time"}, "closed")
		expect.Equal(t, v.Paid, 1, "paid")
	})
}
