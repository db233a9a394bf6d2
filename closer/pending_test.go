package closer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

// The waiting orders are counted.
func TestCloser_APendingPaymentWaitsAndUsesUpNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, metrics := &orderLog{}, &fakeStore{pending: map[string]bool{"new": true, "old": true, "ancient": true}}, testkit.NewMetrics()
		begin := time.Now()
		log.add(t, "new")
		for id, since := range map[string]time.Duration{"old": 3 * time.Minute, "ancient": 25 * time.Hour, "answered": time.Hour} {
			log.put(t, testkit.TopicPartition{Topic: "order-close", Partition: 1}, wire.Record{
				Order: orderclose.Order{ID: id, CreatedAt: begin, Due: begin}, Release: begin,
				PendingSince: begin.Add(-since), Origin: wire.Origin{Topic: "order-close", Offset: 99},
			})
		}
		defer runCloserWith(t, log, store, 10, metrics)()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		waits := map[string]time.Duration{}
		for _, m := range log.Appended()["delay_1m"] {
			r, err := m.Decode()
			if err != nil || r.Attempt != 0 || r.Cause != "payment_pending" || r.PendingSince.IsZero() || r.Origin.Topic != "order-close" {
				t.Errorf("%+v, %v", r, err)
			}
			waits[r.Order.ID] = r.Release.Sub(begin).Truncate(time.Minute)
		}
		if diff := cmp.Diff(map[string]time.Duration{"new": time.Minute, "old": 4 * time.Minute}, waits); diff != "" {
			t.Errorf("asked again after (-want +got):\n%s", diff)
		}
		if dead := log.Appended()["dead"]; len(dead) != 1 || string(dead[0].Key) != "ancient" {
			t.Errorf("dead letters %v, want the order that has waited for more than a day", dead)
		} else if cause, _ := dead[0].Header("cause"); cause != "payment_unresolved" {
			t.Errorf("cause %q", cause)
		}
		began, ended := metrics.Value("payment_pending_began_total"), metrics.Value("payment_pending_ended_total")
		if began != 1 || ended != 2 { // ancient and answered, which another closer had counted
			t.Errorf("%v orders began to wait for the provider and %v ended, want 1 and 2", began, ended)
		}
	})
}
