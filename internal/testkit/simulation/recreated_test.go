package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// TestSimulation_ATopicRecreatedAtOnceIsALoss also while the topic is young: when the relay, which
// sleeps, reads the new log, the new log is longer than the old one was.
func TestSimulation_ATopicRecreatedAtOnceIsALoss(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Partitions = 1
	cfg.Compensator.Period = time.Hour
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(30 * time.Second)
		r.disturbed = true
		first, topic := len(r.losses(ctx)), cfg.Buckets[2].Topic
		for i := range 3 {
			r.order(fmt.Sprint("before", i), "virtual", true)
		}
		time.Sleep(12 * time.Second)
		must.Do(t, r.kafka.DeleteTopics(ctx, topic))
		time.Sleep(1100 * time.Millisecond) // until the client library has noticed
		r.create(ops.TopicSpecs(r.cfg))
		for i := range 8 {
			r.order(fmt.Sprint("after", i), "virtual", true)
		}
		time.Sleep(90 * time.Second)
		reported := r.losses(ctx)[first:]
		expect.That(t, len(reported) == 1 && reported[0].Topic == topic, "reported %+v, want one loss of %s", reported, topic)
		time.Sleep(20 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 11 && v.Lateness[10] <= 2*time.Second, "closed %v, %v late; want all by the pipeline, in time", v.ByPath, v.Lateness)
	})
}
