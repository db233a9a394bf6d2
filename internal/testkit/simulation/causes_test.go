package simulation

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// sweep runs one sweep, as orderclose compensate --once does.
func (r *rig) sweep(withKafka bool) compensator.Report {
	r.t.Helper()
	c := r.connect("sweep")
	defer c.Close()
	used := c
	if !withKafka {
		used.Kafka = nil
	}
	a := must.Get(pipeline.New(pipeline.Options{Config: r.cfg, Connections: used, Logger: r.logger, Missed: r.misses.add}))(r.t)
	comp := must.Get(a.Compensator(nil))(r.t)
	report := must.Get(comp.Sweep(r.t.Context(), false))(r.t)
	return report
}

// scene creates one order, o, that the next sweep finds.
type scene func(ctx context.Context, r *rig)

// without returns a scene in which a part is stopped while the order's record waits for it.
func without(role pipeline.Role) scene {
	return func(_ context.Context, r *rig) {
		r.startPipeline()
		o := r.order("o", "virtual", true)
		time.Sleep(time.Minute)
		r.stop(role)
		untilMissed(o)
	}
}

// failing returns a scene in which closing the order fails until the given time after its due
// time.
func failing(late time.Duration) scene {
	return func(_ context.Context, r *rig) {
		r.startPipeline()
		o := r.order("o", "virtual", true)
		restore := r.lose()
		time.Sleep(time.Until(o.Due.Add(late)))
		restore()
	}
}

// givenUp is longer than all attempts to close a failing order take.
const givenUp = 9 * time.Minute

func untilMissed(o orderclose.Order) { time.Sleep(time.Until(o.Due.Add(70 * time.Second))) }

// publish appends a record directly.
func (r *rig) publish(ctx context.Context, topic string, record wire.Record) {
	r.t.Helper()
	m := must.Get(record.Encode())(r.t)
	must.Do(r.t, r.coal.Append(ctx, topic, m))
}

// TestSimulation_EachCauseOfAMiss produces each cause. The sweep names those that are cheap to know, and the history of the order all.
func TestSimulation_EachCauseOfAMiss(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	for name, c := range map[string]struct {
		scene      scene
		want       compensator.Cause
		where, fix string
		now        string // what the history of the order says before the sweep
		noKafka    bool
	}{
		"the relay is stopped": {
			scene: without(pipeline.Relay),
			want:  compensator.OnItsWay, where: "delay_5m/", fix: "orderclose status",
		},
		"the closer is stopped": {
			scene: without(pipeline.Closer),
			want:  compensator.OnItsWay, where: "order-close/", fix: "orderclose status",
		},
		"it waits in a bucket that is not listed any more": {
			scene: func(ctx context.Context, r *rig) {
				o := r.order("o", "virtual", false)
				r.unlisted = orderclose.Buckets{{Topic: "delay_7m", Length: 7 * time.Minute}}
				r.create([]kafka.TopicSpec{{Name: "delay_7m", Partitions: 1, Replication: 1}})
				r.publish(ctx, "delay_7m", wire.Record{Order: o, Release: o.Due})
				untilMissed(o)
			},
			want: compensator.OnItsWay, where: "delay_7m/", fix: "orderclose status",
		},
		"its replay waits for a closer": {
			scene: func(ctx context.Context, r *rig) {
				o := r.order("o", "virtual", false)
				untilMissed(o)
				r.publish(ctx, r.cfg.Topics.Replay, wire.Record{Order: o, Release: o.Due, Lane: wire.LaneReplay})
			},
			want: compensator.Unknown, fix: "orderclose order o", now: "its record is in order-close-replay/",
		},
		"its due time was moved earlier": {
			scene: func(_ context.Context, r *rig) {
				r.startPipeline()
				o := r.order("o", "virtual", true)
				o.Due = time.Now().Add(time.Minute)
				r.exec("UPDATE orders SET expire_at = ?", o.Due.UnixMilli())
				untilMissed(o)
			},
			want: compensator.Unknown, fix: "orderclose order o", now: "its record waits in delay_5m/",
		},
		"it is retried": {
			scene: failing(80 * time.Second), // between the second attempt and the third
			want:  compensator.Unknown, fix: "orderclose order o", now: "its record waits in delay_1m/",
		},
		"it was given up": {
			scene: failing(givenUp),
			want:  compensator.DeadLettered, where: "dead letter 0/0", fix: "orderclose dlq redrive --order o",
		},
		"it was given up and discarded": {
			scene: func(ctx context.Context, r *rig) {
				failing(givenUp)(ctx, r)
				mark := wire.Resolution{How: wire.Discarded}.Encode([]byte("o"))
				must.Get(r.kafka.Append(ctx, r.cfg.Topics.DeadLetter, 0, []wire.Message{mark}))(r.t)
			},
			want: compensator.Unknown, fix: "orderclose order o", now: "has acknowledged the one in order-close/",
		},
		"it was never published": {
			scene: func(_ context.Context, r *rig) {
				r.startPipeline()
				untilMissed(r.order("o", "virtual", false))
			},
			want: compensator.Unknown, fix: "orderclose order o", now: "no record of it waits",
		},
		"the checkout's clock is an hour ahead": {
			scene: func(ctx context.Context, r *rig) {
				r.startPipeline()
				r.producerAhead = time.Hour
				o := r.orderOf("o", time.Now().Add(time.Hour), "virtual")
				must.Do(r.t, r.shop.Publish(ctx, o))
				time.Sleep(time.Second)
				r.stop(pipeline.Relay)
				untilMissed(o)
			},
			want: compensator.OnItsWay, where: "delay_", fix: "orderclose status",
		},
		"its row is in the schedule outbox": {
			scene: func(_ context.Context, r *rig) {
				if _, ok := any(r.db).(ops.Schedules); !ok {
					r.t.Skip("there is no schedule outbox")
				}
				o := r.order("o", "virtual", false)
				r.exec("INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES ('o', '{}', ?)", o.CreatedAt.UnixMilli())
				untilMissed(o)
			},
			want: compensator.Unpublished, where: "outbox_schedules row ", fix: "orderclose run outbox",
		},
		"there is no Kafka": {
			scene: func(_ context.Context, r *rig) { untilMissed(r.order("o", "virtual", true)) },
			want:  compensator.Unknown, where: "no Kafka is configured", noKafka: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Compensator.Period = 24 * time.Hour // only r.sweep sweeps
			simulate(t, cfg, func(ctx context.Context, r *rig) {
				r.disturbed = true
				c.scene(ctx, r)
				if c.now != "" {
					k := r.connect("history")
					defer k.Close()
					now := ops.Pipeline{Config: r.cfg, Kafka: k.Kafka}.History(ctx, "o", 1000).Now.String()
					expect.That(t, strings.Contains(now, c.now), "the history says %q, want %q", now, c.now)
				}
				report := r.sweep(!c.noKafka)
				must.That(t, report.Closed == 1 && report.Causes[string(c.want)] == 1 && len(report.Misses) == 1,
					"%+v; want the one order closed, and %s", report, c.want)
				m := report.Misses[0]
				expect.That(t, m.Order.ID == "o" && m.Cause == c.want && strings.Contains(m.Where, c.where) && strings.HasPrefix(m.Fix, c.fix),
					"%+v; want it in %q, and %q to fix it", m, c.where, c.fix)
				r.deadCauses = []string{"failed"}
				r.disturbed, r.causes = true, map[string]string{"o": string(c.want)}
				r.check(time.Now())
				if c.want == compensator.DeadLettered {
					topic := deadletters.Topic{Log: r.kafka, Name: cfg.Topics.DeadLetter}
					l, err := topic.Find(ctx, deadletters.Position{})
					expect.That(t, err == nil && l != nil && l.Key == "o", "the dead letter that is named: %+v, %v", l, err)
				}
			})
		})
	}
}

// TestSimulation_AMissingBucketTopicHidesNoCause: a bucket whose topic does not exist is empty.
func TestSimulation_AMissingBucketTopicHidesNoCause(t *testing.T) {
	cfg := testConfig()
	cfg.Compensator.Period = 24 * time.Hour
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.startPipeline()
		created := r.cfg
		listed := *created
		listed.Buckets = append(append(orderclose.Buckets{}, created.Buckets...), orderclose.Bucket{Topic: "delay_4h", Length: 4 * time.Hour})
		o := r.order("o", "virtual", true)
		time.Sleep(time.Minute)
		r.stop(pipeline.Closer)
		untilMissed(o)
		r.cfg = &listed
		report := r.sweep(true)
		expect.That(t, report.Causes[string(compensator.OnItsWay)] == 1, "%+v; want one that is on its way", report)
		r.cfg = created
		r.check(time.Now())
	})
}

// startPipeline starts all parts but the compensator, which would close orders that the pipeline misses.
func (r *rig) startPipeline() {
	for _, role := range []pipeline.Role{pipeline.Relay, pipeline.Closer, pipeline.Outbox} {
		r.start(role)
	}
}
