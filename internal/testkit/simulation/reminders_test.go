package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
)

// TestSimulation_RemindersComeOnceAndOnlyToOrdersThatWait: two compensators write them, and for some time none
// runs. The deadline is after 4m30s, with reminders after 2m30s and 3m30s.
func TestSimulation_RemindersComeOnceAndOnlyToOrdersThatWait(t *testing.T) {
	cfg := testConfig()
	cfg.Delays.Rules = []orderclose.Rule{{
		Match: orderclose.Match{Categories: []string{"virtual"}}, Grace: 30 * time.Second, Remind: []time.Duration{2 * time.Minute, time.Minute},
	}}
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		for _, role := range pipeline.AllRoles() {
			r.start(role)
		}
		r.startAs("second", pipeline.Compensator)
		time.Sleep(10*time.Second + 300*time.Millisecond)
		create := func(from, to int) {
			for i := from; i < to; i++ {
				r.order(fmt.Sprint("o", i), "virtual", true)
			}
		}
		pay := func(from, to int) {
			for i := from; i < to; i++ {
				must.Get(r.shop.Orders.Pay(ctx, fmt.Sprint("o", i), "p"))(t)
			}
		}
		reminders := func(after string, want int) {
			t.Helper()
			expect.Equal(t, r.rows("SELECT COUNT(*) FROM order_reminders"), want, "reminders %s", after)
		}
		create(0, 10)
		r.order("other", "physical", true)
		time.Sleep(time.Minute)
		pay(0, 3) // no reminder
		must.Get(r.shop.Orders.Cancel(ctx, "o9"))(t)
		must.Get(r.world.DB().ExecContext(ctx, "UPDATE orders SET expire_at = expire_at + 600000 WHERE id = 'o8'"))(t)
		time.Sleep(2 * time.Minute)
		reminders("after 3 minutes", 5) // of o3 to o7
		pay(3, 6)
		time.Sleep(time.Minute)
		reminders("after 4 minutes", 7) // again of o6 and o7
		time.Sleep(2 * time.Minute)     // they are closed
		create(10, 12)
		r.stop("second")
		r.stop(pipeline.Compensator)
		time.Sleep(4 * time.Minute)
		reminders("without a compensator", 7)
		r.start(pipeline.Compensator)
		time.Sleep(3 * time.Second)                      // a second until it knows that it is the keeper
		reminders("after the start of a compensator", 9) // one of o10 and o11 each
		time.Sleep(10 * time.Minute)
		reminders("at the end", 11) // two of o8
		v := r.check(time.Now())
		expect.That(t, v.Reminders == 11 && v.Events == 5, "%d reminders and %d closes in the topic, want 11 and 5", v.Reminders, v.Events)
	})
}
