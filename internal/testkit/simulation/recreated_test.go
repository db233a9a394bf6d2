package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline"
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
		r.stop(pipeline.Relay)
		r.start(pipeline.Relay)
		relay := r.registry
		time.Sleep(30 * time.Second)
		r.disturbed = true
		topic := cfg.Buckets[2].Topic
		for i := range 3 {
			r.order(fmt.Sprint("before", i), "virtual", true)
		}
		time.Sleep(12 * time.Second)
		must.Do(t, r.kafka.DeleteTopics(ctx, topic))
		time.Sleep(1100 * time.Millisecond) // until the client library has noticed
		r.create(topics.Specs(r.cfg))
		for i := range 8 {
			r.order(fmt.Sprint("after", i), "virtual", true)
		}
		time.Sleep(90 * time.Second)
		counted := testkit.Metrics{Registry: relay}.Value("retention_lost_records_total", "topic", topic)
		expect.That(t, counted >= 1, "%v records of %s are counted as lost, want one at least", counted, topic)
		time.Sleep(20 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] >= 8 && v.Closed() == 11 && v.Latest() <= lostBound,
			"closed %v, %v late; want the new ones by the pipeline, and all in time", v.ByPath, v.Latest())
	})
}
