package simulation

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

func init() {
	cfg := chaosConfig(&plan{})
	delays := []string{cfg.Buckets[0].Topic, cfg.Buckets[1].Topic}
	closing := append(delays, cfg.Topics.Close)
	all := append(closing, cfg.Topics.DeadLetter, cfg.Topics.Events)
	during := func(most time.Duration, topics ...string) func(d *drawing, e *event) {
		return func(d *drawing, e *event) {
			e.For, e.N = d.span(100*time.Millisecond, most), d.IntN(d.plan.Partitions)
			if len(topics) > 0 {
				e.What = d.among(topics...)
			}
		}
	}
	kinds["answers"] = kind{weight: 8, draw: drawAnswer, play: (*chaosWorld).answer}
	kinds["refuses"] = kind{weight: 5, draw: during(30*time.Second, all...), play: (*chaosWorld).refuse}
	kinds["leaders"] = kind{weight: 2, draw: during(time.Second), play: (*chaosWorld).moveLeaders}
	kinds["coordinators"] = kind{weight: 2, draw: during(time.Second), play: func(w *chaosWorld, _ event) { w.servers.Broker.RehashCoordinators() }}
	kinds["broker-away"] = kind{weight: 3, draw: func(d *drawing, e *event) {
		during(20*time.Second)(d, e)
		e.N, e.How = d.IntN(d.plan.Brokers), d.among("with an election", "without")
	}, play: (*chaosWorld).brokerAway}
	kinds["delete-records"] = kind{weight: 2, loses: true, draw: during(time.Second, closing...), play: func(w *chaosWorld, e event) {
		_ = w.servers.Broker.DeleteRecords(e.What, int32(e.N), -1) // fails if the topic is deleted at the moment
	}}
	kinds["recreate"] = kind{weight: 3, loses: true, draw: during(15*time.Second, append(closing, cfg.Topics.DeadLetter, cfg.Topics.Events)...),
		play: (*chaosWorld).recreate}
	kinds["partitions"] = kind{weight: 2, draw: during(time.Second), play: (*chaosWorld).addPartitions}
	kinds["offsets"] = kind{weight: 2, loses: true, draw: func(d *drawing, e *event) {
		during(5*time.Second, closing...)(d, e)
		e.How = d.among("deleted", "to the start", "to the end")
	}, play: (*chaosWorld).resetOffsets}
	kinds["poison"] = kind{weight: 2, draw: func(d *drawing, e *event) {
		during(time.Second, delays...)(d, e)
		e.How = d.among("no_key", "no_due", "bad_due", "due_too_far", "bad_value")
		if e.How == "bad_value" {
			e.What = cfg.Topics.Close
		}
	}, play: (*chaosWorld).poison}
	kinds["again"] = kind{weight: 3, draw: func(d *drawing, e *event) { e.N = d.IntN(10) }, play: func(w *chaosWorld, e event) {
		if o, err := scenario.OrdersOf(w.db).ViewOrder(w.ctx, fmt.Sprintf("order-%02d", e.N)); err == nil {
			w.errands.Go(func() { w.publish(o.Order) })
		}
	}}
}

// drawAnswer draws an error with which the brokers answer some requests of one kind.
func drawAnswer(d *drawing, e *event) {
	e.N = d.IntN(len(brokerFaults))
	f := brokerFaults[e.N]
	e.What, e.How = f.key.Name(), f.errs[d.IntN(len(f.errs))].Message
	if e.Then = d.among("", "top level"); d.IntN(3) == 0 {
		e.For = d.span(100*time.Millisecond, 10*time.Second)
	}
}

// fewAnswers is the number of wrong answers of an event that does not last.
const fewAnswers = 3

// manyAnswers bounds the wrong answers of an event. While a rebalance is in progress, kafka-go
// joins a group again at once, and no simulated time passes between two such requests.
const manyAnswers = 1000

// answer makes the brokers answer requests of one kind with an error: a few requests, or all of them for a while.
func (w *chaosWorld) answer(e event) {
	for _, err := range brokerFaults[e.N].errs {
		if err.Message != e.How {
			continue
		}
		f := kfake.Fault{Keys: []kmsg.Key{brokerFaults[e.N].key}, Err: err, Count: fewAnswers, TopLevel: e.Then != ""}
		if e.For > 0 {
			f.Count = manyAnswers
		} else {
			e.For = 10 * time.Second
		}
		h := w.servers.Broker.Fault(f)
		w.hold(e)
		h.Remove()
	}
}

// refuse makes a topic reject all records for a while.
func (w *chaosWorld) refuse(e event) {
	h := w.servers.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: e.What, Err: kerr.NotEnoughReplicas, Count: -1})
	w.hold(e)
	h.Remove()
}

// moveLeaders moves every partition to the next broker.
func (w *chaosWorld) moveLeaders(event) {
	for _, spec := range topics.Specs(w.config()) {
		for _, p := range w.servers.Broker.PartitionInfos(spec.Name) {
			_ = w.servers.Broker.MoveTopicPartition(spec.Name, p.Partition, (p.Leader+1)%int32(w.plan.Brokers))
		}
	}
}

// brokerAway disconnects a broker from all processes for a while. With an election the other
// brokers become leaders of its partitions. If there is only one broker, it stays the leader.
func (w *chaosWorld) brokerAway(e event) {
	address := w.servers.Brokers()[e.N]
	w.mu.Lock()
	w.away[address]++
	networks := append([]*network(nil), w.networks...)
	w.mu.Unlock()
	for _, n := range networks {
		n.resetTo(address)
	}
	if e.How == "with an election" {
		w.moveLeaders(e)
		w.servers.Broker.RehashCoordinators()
	}
	w.hold(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away[address]--
}

// recreate deletes a topic, and creates it again after a while.
func (w *chaosWorld) recreate(e event) {
	if w.servers.Broker.DeleteTopic(e.What) != nil {
		return // another event has deleted it
	}
	if e.What == w.config().Topics.Events {
		w.mu.Lock()
		w.eventsDeleted = time.Now()
		w.mu.Unlock()
	}
	w.hold(e)
	for _, spec := range topics.Specs(w.config()) {
		if spec.Name == e.What {
			_ = w.createTopic(spec) // fails if addPartitions has created it
		}
	}
}

// admin calls do, until it succeeds, with a client that no network fault disturbs.
func (w *chaosWorld) admin(do func(c *kafka.Cluster) error) {
	c, err := kafka.New(kafka.Options{Brokers: w.servers.Brokers(), ClientID: "admin", Dial: w.servers.Dial, Logger: w.logger})
	if err != nil {
		w.violation("harness", "%v", err)
		return
	}
	defer c.Close()
	for do(c) != nil && wait(w.ctx, 500*time.Millisecond) {
	}
}

// addPartitions adds one partition to every topic.
func (w *chaosWorld) addPartitions(event) {
	w.mu.Lock()
	more := *w.cfg
	more.Partitions++
	w.cfg = &more // for processes that are started, and topics that are created, from now on
	w.mu.Unlock()
	specs := topics.Specs(&more)
	for i := range specs {
		specs[i].Named = true // unreadable records may be all that a topic holds
	}
	w.admin(func(c *kafka.Cluster) error {
		_, _, err := c.Apply(w.faulty, specs)
		if w.faulty.Err() != nil {
			_, _, err = c.Apply(w.ctx, specs)
		}
		return err
	})
}

// resetOffsets changes the commits of a group. It stops the group's members for that.
func (w *chaosWorld) resetOffsets(e event) {
	role := pipeline.Relay
	if e.What == w.config().Topics.Close {
		role = pipeline.Closer
	}
	var stopped []*process
	for _, p := range w.playing(role) {
		if p = w.take(p.name); p != nil {
			p.stop()
			stopped = append(stopped, p)
		}
	}
	w.hold(e)
	group := w.groups()[e.What]
	switch e.How {
	case "deleted":
		w.admin(func(c *kafka.Cluster) error {
			err := drop.Groups(w.faulty, c, group)
			if w.faulty.Err() != nil {
				return nil // a killed process stays a member until its session times out
			}
			return err
		})
	default:
		list := (*kadm.Client).ListStartOffsets
		if e.How == "to the end" {
			list = (*kadm.Client).ListEndOffsets
		}
		w.ask(func(c *kgo.Client) { // if a broker answers with an error, the commits stay as they were
			_ = testkit.SetCommits(w.faulty, kadm.NewClient(c), group, e.What, list)
		})
	}
	for _, p := range stopped {
		w.launch(p.name, p.roles...)
	}
}

// ask calls do with a client of the brokers.
func (w *chaosWorld) ask(do func(c *kgo.Client)) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.servers.Brokers()...), kgo.Dialer(w.servers.Dial))
	if err != nil {
		w.violation("harness", "%v", err)
		return
	}
	defer client.Close()
	do(client)
}

// poison appends a record that cannot be handled.
func (w *chaosWorld) poison(e event) {
	due := time.Now().Add(time.Second)
	m, err := wire.Record{Order: orderclose.Order{ID: "poison", CreatedAt: time.Now(), Due: due}, Release: due}.Encode()
	if err != nil {
		w.violation("harness", "%v", err)
		return
	}
	cause := strings.Replace(e.How, "no_due", "bad_due", 1)
	switch e.How {
	case "no_key":
		m.Key = nil
	case "no_due":
		m.Headers = m.Headers[1:]
	case "bad_due":
		m.Headers[0].Value = []byte("tomorrow")
	case "due_too_far":
		m.Headers[0].Value = []byte("253402300799000") // the year 9999
	case "bad_value":
		m.Value = []byte(`{"order_id":`)
	}
	w.add(&w.deadCauses, cause)
	w.admin(func(c *kafka.Cluster) error {
		_, err := c.Append(w.faulty, e.What, 0, []wire.Message{m})
		if w.faulty.Err() != nil {
			return nil
		}
		return err
	})
}
