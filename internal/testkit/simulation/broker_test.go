package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

func TestSimulation_ADeletedTopicCausesNoBusyLoop(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		joins := r.count(kmsg.JoinGroup)
		r.start(pipeline.Relay)
		time.Sleep(10 * time.Second)
		before := joins.Load()
		must.Do(t, r.kafka.DeleteTopics(ctx, r.cfg.Buckets[2].Topic))
		time.Sleep(20 * time.Second)
		expect.AtMost(t, joins.Load()-before, 20, "joins in 20 s after the topic was deleted")
	})
}

func TestSimulation_ARecreatedTopicIsRead(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startStable()
		must.Do(t, r.kafka.DeleteTopics(ctx, r.cfg.Buckets[2].Topic))
		time.Sleep(20*time.Second + 3*time.Millisecond)
		r.create(ops.TopicSpecs(r.cfg))
		time.Sleep(30 * time.Second)
		r.order("after", "virtual", true)
		time.Sleep(6 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 1, "closed %v, want one by the pipeline", v.ByPath)
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
		must.Do(t, r.kafka.DeleteTopics(ctx, cfg.Topics.Close))
		time.Sleep(5 * time.Second)
		fewer := *cfg // a copy, because the running parts read cfg
		fewer.Partitions = 2
		r.create(ops.TopicSpecs(&fewer))
		time.Sleep(10 * time.Minute)
		for _, b := range cfg.Buckets {
			commits := must.Get(r.kafka.Commits(ctx, cfg.RelayGroup(b), b.Topic, cfg.Partitions))(t)
			for p := range cfg.Partitions {
				_, end, err := r.kafka.Bounds(ctx, b.Topic, p)
				expect.That(t, err == nil && commits[p].Offset == end, "%s/%d stands at %d of %d: %v", b.Topic, p, commits[p].Offset, end, err)
			}
		}
		time.Sleep(time.Until(r.shop.LastDue().Add(missBound(cfg))))
		// The records of the old topic are gone, which is no fault of the relay.
		v := r.verdict(time.Now())
		expect.That(t, v.Closed() == 50 && v.ByPath["pipeline"] >= 35, "closed %v, want all 50, most of them by the pipeline", v.ByPath)
	})
}

func TestSimulation_AddedPartitionsAreRead(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startStable()
		more := *r.cfg // a copy, because the running parts read r.cfg
		more.Partitions = 5
		r.create(ops.TopicSpecs(&more))
		time.Sleep(10 * time.Second)
		for i := range 20 {
			r.order("o"+string(rune('a'+i)), "virtual", true)
		}
		time.Sleep(6 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 20 && v.Quantile(1) == 0, "closed %v, up to %v late", v.ByPath, v.Quantile(1))
	})
}

// TestSimulation_ADatabaseClockBehindCostsAFewHops: by the database's clock no close is early or
// late, and no record hops in circles.
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
				expect.AtMost(t, r.appends(), 8, "appends")
			})
		})
	}
}

// TestSimulation_ARelaysClockDecidesNothing: the relay uses the brokers' clock, however wrong its
// own is. With two clocks a record would hop in circles.
func TestSimulation_ARelaysClockDecidesNothing(t *testing.T) {
	t.Parallel()
	for _, ahead := range variants(time.Hour, 11*time.Second, -11*time.Second, -24*time.Hour) {
		t.Run(ahead.String(), func(t *testing.T) {
			simulate(t, testConfig(), func(ctx context.Context, r *rig) {
				r.relayAhead = ahead
				r.startStable()
				for i := range 10 {
					r.order("o"+string(rune('a'+i)), "virtual", true)
					time.Sleep(time.Second)
				}
				time.Sleep(6 * time.Minute)
				v := r.check(time.Now())
				expect.That(t, v.ByPath["pipeline"] == 10 && v.Quantile(1) <= 10*time.Millisecond, "closed %v, up to %v late", v.ByPath, v.Quantile(1))
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

// losses reads the reported losses from the control topic.
func (r *rig) losses(ctx context.Context) (all []wire.Lost) {
	r.t.Helper()
	_, end, err := r.kafka.Bounds(ctx, r.cfg.Topics.Control, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	err = r.kafka.ReadSpan(ctx, r.cfg.Topics.Control, kafka.Span{End: end}, func(records []wire.RawRecord) error {
		for _, record := range records {
			m, err := record.Message()
			if err != nil {
				return err
			}
			if string(m.Key) == wire.KeyLost {
				var l wire.Lost
				if err := json.Unmarshal(m.Value, &l); err != nil {
					return err
				}
				all = append(all, l)
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// TestSimulation_EveryLossIsReportedAndSwept: retention deletes records that a stopped relay had
// not read, a topic is recreated below its commits, and a topic is deleted with its commits.
func TestSimulation_EveryLossIsReportedAndSwept(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	lose := func(t *testing.T, how func(ctx context.Context, r *rig, topic string)) {
		cfg := testConfig()
		cfg.Partitions = 1
		cfg.Compensator.Period = 5 * time.Minute
		simulate(t, cfg, func(ctx context.Context, r *rig) {
			r.startStable()
			first := len(r.losses(ctx)) // the first start: nothing was committed
			expect.Equal(t, first, len(cfg.Buckets)+2, "losses reported at the first start, one for each partition")
			for i := range 5 {
				r.order(fmt.Sprint("before", i), "virtual", true)
			}
			time.Sleep(6 * time.Minute)
			r.stop(pipeline.Relay)
			r.disturbed = true
			topic := cfg.Buckets[2].Topic
			for i := range 3 {
				r.order(fmt.Sprint("lost", i), "virtual", true)
			}
			how(ctx, r, topic)
			r.start(pipeline.Relay)
			time.Sleep(10 * time.Second)
			reported := r.losses(ctx)[first:]
			expect.That(t, len(reported) == 1 && reported[0].Topic == topic, "reported %+v, want one loss of %s", reported, topic)
			r.order("after", "virtual", true)
			time.Sleep(12 * time.Minute)
			v := r.check(time.Now())
			expect.That(t, v.ByPath["pipeline"] >= 6 && v.ByPath["sweep"] <= 3, "closed %v, want the lost ones by the sweep", v.ByPath)
		})
	}
	t.Run("retention", func(t *testing.T) {
		lose(t, func(ctx context.Context, r *rig, topic string) {
			must.Do(t, r.world.Broker.DeleteRecords(topic, 0, 8))
		})
	})
	t.Run("recreated", func(t *testing.T) {
		lose(t, func(ctx context.Context, r *rig, topic string) {
			group := r.cfg.RelayGroup(r.cfg.Buckets[2])
			commits, err := r.kafka.Commits(ctx, group, topic, 1)
			must.That(t, err == nil && commits[0].Offset == 5, "%v %v", commits, err)
			recreate(ctx, r, topic)
			r.commit(ctx, group, topic, 5)
		})
	})
	t.Run("deleted with its commits", func(t *testing.T) {
		lose(t, func(ctx context.Context, r *rig, topic string) { recreate(ctx, r, topic) })
	})
}

// recreate deletes a topic and its commits, and creates the topic again.
func recreate(ctx context.Context, r *rig, topic string) {
	r.t.Helper()
	must.Do(r.t, r.kafka.DeleteTopics(ctx, topic))
	time.Sleep(5 * time.Second)
	if err := r.kafka.DeleteGroups(ctx, r.cfg.RelayGroup(r.cfg.Buckets[2])); err != nil { // a real broker deletes the commits too
		r.t.Fatal(err)
	}
	r.create(ops.TopicSpecs(r.cfg))
}

// commit commits an offset for a group that has no members.
func (r *rig) commit(ctx context.Context, group, topic string, offset int64) {
	r.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, offset, -1)
	r.ask(func(c *kadm.Client) error { return c.CommitAllOffsets(ctx, group, offsets) })
}

// TestSimulation_ATopicThatIsChangedIsNoticed: a shorter retention would delete records that
// still wait.
func TestSimulation_ATopicThatIsChangedIsNoticed(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.start(pipeline.Relay)
		time.Sleep(2 * time.Minute)
		specs := ops.TopicSpecs(r.cfg)
		expect.Equal(t, r.gauge("orderclose_topic_drift"), 0, "differences before anything was changed")
		r.setTopic(ctx, specs[3].Name, "retention.ms", "3600000")
		time.Sleep(2 * time.Minute)
		expect.Equal(t, r.gauge("orderclose_topic_drift"), 1, "differences after a change")
		r.create(specs)
		time.Sleep(2 * time.Minute)
		expect.Equal(t, r.gauge("orderclose_topic_drift"), 0, "differences after topics apply")
	})
}
