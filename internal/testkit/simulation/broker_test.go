package simulation

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline"
)

func TestSimulation_ADeletedTopicCausesNoBusyLoop(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		joins := r.count(kmsg.JoinGroup)
		r.start(pipeline.Relay)
		time.Sleep(10 * time.Second)
		before := joins.Load()
		must.Do(t, drop.Topics(ctx, r.kafka, r.cfg.Buckets[2].Topic))
		time.Sleep(20 * time.Second)
		expect.AtMost(t, joins.Load()-before, 20, "joins in 20 s after the topic was deleted")
	})
}

// TestSimulation_ACloseTopicRecreatedWithFewerPartitionsIsUsed: records on their way to a
// partition that no longer exists go to the new partition of their key.
func TestSimulation_ACloseTopicRecreatedWithFewerPartitionsIsUsed(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Partitions = 4
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.startAll()
		r.disturbed = true
		time.Sleep(10 * time.Second)
		for i := range 50 {
			r.order(fmt.Sprint("o", i), "virtual", true)
			time.Sleep(800 * time.Millisecond)
		}
		time.Sleep(4*time.Minute + 30*time.Second) // they are due one after the other
		must.Do(t, drop.Topics(ctx, r.kafka, cfg.Topics.Close))
		time.Sleep(5 * time.Second)
		fewer := *cfg // a copy, because the running parts read cfg
		fewer.Partitions = 2
		r.create(topics.Specs(&fewer))
		time.Sleep(10 * time.Minute)
		for _, b := range cfg.Buckets {
			commits := must.Get(r.kafka.Commits(ctx, cfg.RelayGroup(b), b.Topic, cfg.Partitions))(t)
			for p := range cfg.Partitions {
				_, end, err := r.kafka.Bounds(ctx, b.Topic, p)
				expect.That(t, err == nil && commits[p].Offset == end, "%s/%d stands at %d of %d: %v", b.Topic, p, commits[p].Offset, end, err)
			}
		}
		time.Sleep(time.Until(r.shop.LastDue().Add(missBound)))
		// The records of the old topic are gone, which is no fault of the relay.
		v := r.verdict(time.Now())
		expect.That(t, v.Closed() == 50 && v.ByPath["pipeline"] >= 35, "closed %v, want all 50, most of them by the pipeline", v.ByPath)
	})
}

// TestSimulation_ADatabaseClockBehindCostsAFewHops: by the database's clock no close is early or
// late, and a record that relays release too early hops in circles slowly.
func TestSimulation_ADatabaseClockBehindCostsAFewHops(t *testing.T) {
	t.Parallel()
	for _, behind := range variants(5*time.Minute, 5*time.Second, 15*time.Second, 40*time.Minute) {
		t.Run(behind.String(), func(t *testing.T) {
			simulateBehind(t, testConfig(), behind, func(ctx context.Context, r *rig) {
				r.startAll()
				time.Sleep(time.Minute) // longer than the first start takes: the order is created ahead of the database's clock
				r.order("o", "virtual", true)
				time.Sleep(10*time.Minute + behind)
				v := r.check(time.Now().Add(-behind))
				expect.That(t, v.ByPath["pipeline"] == 1 && v.Quantile(1) == 0, "closed %v, %v late by its clock", v.ByPath, v.Quantile(1))
				expect.AtMost(t, r.appends(), 8+2*int64(behind.Minutes()), "appends")
			})
		})
	}
}

// TestSimulation_ATakeOverRepeatsNothing: the due times of the records are in any order. A relay
// that takes over forwards the records that were not forwarded yet, and no others.
func TestSimulation_ATakeOverRepeatsNothing(t *testing.T) {
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{}
	for i := range 20 {
		cfg.Delays.ByCategory[fmt.Sprint("c", i)] = time.Duration(9-(i*7)%9) * time.Second
	}
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.startStable()
		for i := range 200 {
			r.order(fmt.Sprint("o", i), fmt.Sprint("c", i%20), true)
			time.Sleep(50 * time.Millisecond)
			if i%20 == 19 {
				r.stop(pipeline.Relay)
				r.start(pipeline.Relay)
			}
		}
		time.Sleep(time.Minute)
		v := r.check(time.Now())
		expect.Equal(t, v.ByPath["pipeline"], 200, "closed by the pipeline of %v", v.ByPath)
		expect.Equal(t, r.inTopic(cfg.Topics.Close), 200, "records in the close topic of 200 orders")
	})
}

// TestSimulation_ATopicThatIsChangedIsNoticed: a shorter retention would delete records that still wait.
func TestSimulation_ATopicThatIsChangedIsNoticed(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.start(pipeline.Relay)
		time.Sleep(2 * time.Minute)
		specs := topics.Specs(r.cfg)
		expect.Equal(t, r.gauge("orderclose_topic_drift"), 0, "differences before anything was changed")
		r.setTopic(ctx, specs[3].Name, "retention.ms", "3600000")
		time.Sleep(2 * time.Minute)
		expect.Equal(t, r.gauge("orderclose_topic_drift"), 1, "differences after a change")
		r.create(specs)
		time.Sleep(2 * time.Minute)
		expect.Equal(t, r.gauge("orderclose_topic_drift"), 0, "differences after topics apply")
		r.world.Broker.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
			r.world.Broker.KeepControl()
			return nil, errors.New("no answer"), true
		})
		time.Sleep(10 * time.Minute)
		expect.Equal(t, testkit.Metrics{Registry: r.registry}.Series("topic_drift"), 0, "series while nobody knows the settings")
	})
}
