package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/outbox"
	"github.com/orderclose/orderclose/pipeline"
)

// inTopic counts the records of a topic.
func (r *rig) inTopic(topic string) (n int64) {
	r.t.Helper()
	partitions := must.Get(r.kafka.Partitions(r.t.Context(), topic))(r.t)
	for p := range partitions {
		_, end, err := r.kafka.Bounds(r.t.Context(), topic, p)
		must.Do(r.t, err)
		n += end
	}
	return n
}

// killed is a store whose dispatcher always dies after it has published rows and before it deletes them.
type killed struct{ *store.Store }

func (k killed) Dispatch(ctx context.Context, box wire.Outbox, after int64, limit int, publish func(context.Context, []wire.OutboxRow) []int64) (int, error) {
	n, err := k.Store.Dispatch(ctx, box, after, limit, func(ctx context.Context, rows []wire.OutboxRow) []int64 {
		publish(ctx, rows)
		return nil
	})
	return n, errors.Join(err, context.Canceled)
}

// dispatchAndDie runs a dispatcher that dies after it has published rows and before it deletes them.
func (r *rig) dispatchAndDie(kind outbox.Kind) {
	r.t.Helper()
	dying := must.Get(outbox.New(outbox.Options{
		Store: killed{r.db}, Kafka: r.kafka, Kinds: []outbox.Kind{kind}, DeadLetterTopic: r.cfg.Topics.DeadLetter,
	}))(r.t)
	dead, cancel := context.WithTimeout(r.t.Context(), 100*time.Millisecond)
	defer cancel()
	must.Do(r.t, dying.Run(dead))
}

// TestSimulation_ADispatcherKilledBeforeItDeletesRepeatsTheEvent under the same id.
func TestSimulation_ADispatcherKilledBeforeItDeletesRepeatsTheEvent(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.start(pipeline.Relay)
		r.start(pipeline.Closer)
		time.Sleep(10 * time.Second)
		for i := range 7 {
			r.order(fmt.Sprint("o", i), "virtual", true)
		}
		time.Sleep(5*time.Minute + time.Second)
		if v := r.check(time.Now()); v.Events != 0 || v.Closed() != 7 {
			t.Errorf("without a dispatcher %d events of %d closed orders", v.Events, v.Closed())
		}
		r.dispatchAndDie(outbox.Events(r.cfg.Topics.Events))
		n := r.inTopic(r.cfg.Topics.Events)
		expect.That(t, n >= 7 && n%7 == 0, "%d events published before the kill", n)
		expect.Equal(t, must.Get(r.db.Backlog(ctx, wire.EventOutbox))(t).Rows, 7, "events in the outbox")
		r.start(pipeline.Outbox)
		time.Sleep(5 * time.Second)
		expect.Equal(t, r.check(time.Now()).Events, 7, "events")
		expect.That(t, r.inTopic(r.cfg.Topics.Events) >= 14,
			"%d records of events: nothing was repeated, so the test proves nothing", r.inTopic(r.cfg.Topics.Events))
	})
}

// TestSimulation_WithKafkaDownEventsWait: the sweep closes orders, no event is lost, and the dispatcher does not retry in a busy loop.
func TestSimulation_WithKafkaDownEventsWait(t *testing.T) {
	ring.NotShort(t)
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.start(pipeline.Compensator)
		r.start(pipeline.Outbox)
		time.Sleep(10 * time.Second)
		down := r.world.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		for i := range 10 {
			r.order(fmt.Sprint("o", i), "virtual", false)
		}
		time.Sleep(25 * time.Minute)
		backlog, err := r.db.Backlog(ctx, wire.EventOutbox)
		expect.That(t, err == nil && backlog.Rows == 10 && backlog.Oldest >= 8*time.Minute,
			"backlog %+v, %v; want 10 events, the oldest as old as the first sweep", backlog, err)
		oldest := r.gauge("orderclose_outbox_oldest_unpublished_seconds")
		expect.That(t, oldest >= 480, "the metric is %v s", oldest)
		hits := down.Hits()
		time.Sleep(time.Minute)
		expect.AtMost(t, down.Hits()-hits, 600, "requests a minute while Kafka was down")
		down.Remove()
		time.Sleep(time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.Events == 10 && v.ByPath["sweep"] == 10, "%d events, closed by path %v", v.Events, v.ByPath)
		expect.Equal(t, r.gauge("orderclose_outbox_oldest_unpublished_seconds"), 0, "the metric in seconds")
	})
}

// TestSimulation_TwoDispatchersShareTheEvents while they are stopped and started.
func TestSimulation_TwoDispatchersShareTheEvents(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Compensator.Period = 5 * time.Minute
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.startAll()
		r.startAs("outbox-2", pipeline.Outbox)
		time.Sleep(10 * time.Second)
		steps := scenario.Plan(scenario.Spec{Seed: 5, Orders: 200, Over: time.Minute, Categories: []string{"virtual"}, SKUs: 20})
		played := make(chan error)
		go func() { played <- r.shop.Run(ctx, time.Now(), steps) }()
		random := rand.New(rand.NewPCG(5, 5))
		for range 20 {
			name := []pipeline.Role{pipeline.Outbox, "outbox-2"}[random.IntN(2)]
			time.Sleep(time.Duration(random.Int64N(int64(40 * time.Second))))
			r.stop(name)
			time.Sleep(time.Duration(random.Int64N(int64(5 * time.Second))))
			r.startAs(name, pipeline.Outbox)
		}
		expect.NoError(t, <-played)
		time.Sleep(10 * time.Minute)
		v := r.check(time.Now())
		if n := r.inTopic(cfg.Topics.Events); n != int64(v.Closed()) || v.Events != v.Closed() {
			t.Errorf("%d closed, %d events in %d records; a stop must repeat none", v.Closed(), v.Events, n)
		}
	})
}

func TestSimulation_AnEventTooLargeForKafkaStopsNoOther(t *testing.T) {
	cfg := testConfig()
	cfg.Partitions = 1
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.setTopic(ctx, cfg.Topics.Events, "max.message.bytes", "2000")
		r.start(pipeline.Relay)
		r.start(pipeline.Closer)
		time.Sleep(10 * time.Second)
		for i := range 5 {
			r.order(fmt.Sprint("o", i), "virtual", true)
		}
		big := r.shop.Producer.Order("big", time.Now(), "virtual")
		var items []shopdb.Item
		for i := range 20 {
			items = append(items, shopdb.Item{SKU: scenario.SKU(i), Quantity: 1})
		}
		big.ID += "-of-64-bytes-and-so-are-the-keys-of-all-its-releases-in-the-event"[:60]
		must.Do(t, errors.Join(r.shop.Orders.CreateOrder(ctx, big, items), r.shop.Publish(ctx, big)))
		time.Sleep(5*time.Minute + time.Second)
		r.start(pipeline.Outbox)
		time.Sleep(5 * time.Second)
		r.deadCauses = []string{"refused"}
		if v := r.check(time.Now()); v.Events != 5 || v.Closed() != 6 || r.deadLetters(ctx)["refused"] != 1 {
			t.Errorf("%d events of %d closed orders, dead letters %v", v.Events, v.Closed(), r.deadLetters(ctx))
		}
	})
}

// texts runs a query of one column of text.
func (r *rig) texts(query string) (all []string) {
	r.t.Helper()
	rows := must.Get(r.world.DB().QueryContext(r.t.Context(), query))(r.t)
	defer rows.Close()
	for rows.Next() {
		var text string
		must.Do(r.t, rows.Scan(&text))
		all = append(all, text)
	}
	must.Do(r.t, rows.Err())
	return all
}
