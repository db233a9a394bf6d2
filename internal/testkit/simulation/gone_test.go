package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline"
)

// TestSimulation_RecordsOfADeletedTopicAreCountedOnce: a delay topic that nobody has read to its end is deleted, is away for up to a minute, and
// comes back with fewer, as many or more partitions. Relays come and go before and meanwhile, and answers about the topic are stale.
// A failing seed plays the same again.
func TestSimulation_RecordsOfADeletedTopicAreCountedOnce(t *testing.T) {
	t.Parallel()
	for seed := range goneSeeds.inRing() {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			cfg := testConfig()
			cfg.Partitions = 1 + seed%5
			const length = 10 * time.Minute
			cfg.Buckets[3] = orderclose.Bucket{Topic: cfg.Topics.OfBucket(length), Length: length}
			cfg.Delays.ByCategory["physical"] = length
			simulate(t, cfg, func(ctx context.Context, r *rig) {
				g := &goneTopic{rig: r, random: rand.New(rand.NewPCG(uint64(seed), 5))}
				for _, spec := range topics.Specs(cfg) {
					if spec.Name == cfg.Buckets[3].Topic {
						g.spec = spec
					}
				}
				g.play(ctx)
			})
		})
	}
}

// goneTopic is a world in which a topic is deleted.
type goneTopic struct {
	*rig
	random  *rand.Rand
	spec    kafka.TopicSpec
	relays  []pipeline.Role   // that run
	metrics []testkit.Metrics // of all relays that have run
	orders  int
}

func (g *goneTopic) play(ctx context.Context) {
	g.disturbed = true
	for _, role := range []pipeline.Role{pipeline.Closer, pipeline.Compensator} {
		g.start(role)
	}
	for range 1 + g.random.IntN(3) {
		g.startRelay()
	}
	least, most := 0, 0 // records that are counted as lost
	for range 1 + g.random.IntN(2) {
		time.Sleep(20 * time.Second)
		for range g.random.IntN(60) {
			g.order(fmt.Sprint("o", g.orders), "physical", true)
			g.orders++
			time.Sleep(g.upTo(time.Second))
		}
		if g.random.IntN(2) == 0 {
			g.staleAnswers()
		}
		time.Sleep(10*time.Second + g.upTo(20*time.Second)) // relays ask each 5 s how much waits
		g.counted(least, most, "before the topic was deleted")
		waiting := int(g.inTopic(g.spec.Name))
		least, most = least+waiting, most+waiting+g.spec.Partitions // of an empty log that was recreated, it is not known that it was empty
		must.Do(g.t, drop.Topics(ctx, g.kafka, g.spec.Name))
		away := time.Duration(0)
		if g.random.IntN(4) > 0 {
			away = g.upTo(time.Minute)
			g.changeRelays(away)
		}
		g.spec.Partitions = 1 + g.random.IntN(6)
		g.create([]kafka.TopicSpec{g.spec})
		if away == 0 {
			g.changeRelays(g.upTo(2 * time.Second))
		}
		time.Sleep(15 * time.Second)
		g.t.Logf("%d records waited, away for %v, %d partitions, %d relays", waiting, away, g.spec.Partitions, len(g.relays))
		g.counted(least, most, fmt.Sprintf("the topic was away for %v", away))
	}
	last := g.order("last", "physical", true)
	time.Sleep(time.Until(last.Due.Add(lostBound)))
	v := g.verdict(time.Now())
	expect.That(g.t, v.Closed() == g.orders+1 && v.Early == 0 && v.Inconsistent == 0 && v.ByPath["pipeline"] > 0, "closed %v, early %d, double %d; want %d",
		v.ByPath, v.Early, v.Inconsistent, g.orders+1)
	expect.AtMost(g.t, v.Latest(), lostBound, "the lateness")
	g.counted(least, most, "at the end")
}

func (g *goneTopic) upTo(d time.Duration) time.Duration {
	return time.Duration(g.random.Int64N(int64(d)))
}

func (g *goneTopic) startRelay() {
	name := pipeline.Role(fmt.Sprint("relay", len(g.metrics)))
	g.startAs(name, pipeline.Relay)
	g.relays, g.metrics = append(g.relays, name), append(g.metrics, testkit.Metrics{Registry: g.registry})
}

// changeRelays starts or stops a relay, or does neither, within a time.
func (g *goneTopic) changeRelays(within time.Duration) {
	began, before := time.Now(), g.upTo(within+1)
	time.Sleep(before)
	switch i := g.random.IntN(len(g.relays)); {
	case g.random.IntN(3) == 0:
		g.startRelay()
	case g.random.IntN(2) == 0 && len(g.relays) > 1:
		g.stop(g.relays[i])
		g.relays = slices.Delete(g.relays, i, i+1)
	}
	time.Sleep(within - time.Since(began))
}

// staleAnswers makes brokers say now and then, for less than a second, that the topic does not exist, while relays come and go.
func (g *goneTopic) staleAnswers() {
	for range 5 {
		stale := g.world.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: g.spec.Name, Err: kerr.UnknownTopicOrPartition, Count: -1})
		time.AfterFunc(900*time.Millisecond, stale.Remove)
		g.changeRelays(800 * time.Millisecond)
		time.Sleep(time.Second)
	}
}

// counted compares how many records relays have counted as lost.
func (g *goneTopic) counted(least, most int, when string) {
	g.t.Helper()
	n := 0
	for _, m := range g.metrics {
		n += int(m.Value("retention_lost_records_total"))
	}
	expect.That(g.t, n >= least && n <= most, "%s: counted %d records as lost, want %d to %d", when, n, least, most)
}
