//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/kafka/drop"
)

// topicKinds change topics, records and commits.
var topicKinds = []kind{
	{name: "move-leaders", does: "another replica leads each partition of the pipeline", least: time.Second, most: time.Second, on: onBrokers,
		play: func(w *world, e event) error { return w.moveLeaders(e, w.topics()...) }},
	{name: "move-coordinators", does: "another broker coordinates each group", least: time.Second, most: time.Second, on: onBrokers,
		play: func(w *world, e event) error { return w.moveLeaders(e, "__consumer_offsets") }},
	{name: "recreate-delay-topic", does: "a delay topic is deleted with its records and commits, and created again at once",
		least: 100 * time.Millisecond, most: time.Second, on: onBrokers, loses: true,
		play: func(w *world, e event) error { return w.recreate(e, w.delayTopic(e)) }},
	{name: "recreate-close-topic", does: "the close topic is deleted with its records and commits, and created again",
		least: time.Second, most: 4 * time.Second, on: onBrokers, loses: true,
		play: func(w *world, e event) error { return w.recreate(e, w.cfg.Topics.Close) }},
	{name: "delete-records-delay", does: "every record of a delay topic is deleted, as retention does",
		least: 100 * time.Millisecond, most: time.Second, on: onTopics, loses: true,
		play: func(w *world, e event) error { return w.deleteRecords(w.delayTopic(e)) }},
	{name: "delete-records-close", does: "every record of the close topic is deleted, as retention does",
		least: 100 * time.Millisecond, most: time.Second, on: onTopics, loses: true,
		play: func(w *world, e event) error { return w.deleteRecords(w.cfg.Topics.Close) }},
	{name: "delete-offsets-relay", does: "the relays stop, the commits of a delay topic are deleted, and the relays start",
		least: 100 * time.Millisecond, most: time.Second, on: "relay", loses: true,
		play: func(w *world, e event) error {
			return w.withoutGroup(e, "relay", func() error { return drop.Groups(w.ctx, w.kafka, w.relayGroup(e)) })
		}},
	{name: "delete-offsets-closer", does: "the closers stop, the commits of the close topic are deleted, and the closers start",
		least: 100 * time.Millisecond, most: time.Second, on: "closer", loses: true,
		play: func(w *world, e event) error {
			return w.withoutGroup(e, "closer", func() error { return drop.Groups(w.ctx, w.kafka, w.cfg.CloserGroup()) })
		}},
	{name: "reset-offsets-relay", does: "the relays stop, the commits of a delay topic are set to its beginning, and the relays start",
		least: 100 * time.Millisecond, most: time.Second, on: "relay",
		play: func(w *world, e event) error {
			return w.withoutGroup(e, "relay", func() error { return w.resetCommits(w.relayGroup(e), w.delayTopic(e), (*kadm.Client).ListStartOffsets) })
		}},
	{name: "skip-offsets-relay", does: "the relays stop, the commits of a delay topic are set to its end, and the relays start",
		least: 100 * time.Millisecond, most: time.Second, on: "relay", loses: true,
		play: func(w *world, e event) error {
			return w.withoutGroup(e, "relay", func() error { return w.resetCommits(w.relayGroup(e), w.delayTopic(e), (*kadm.Client).ListEndOffsets) })
		}},
	{name: "reset-offsets-closer", does: "the closers stop, the commits of the close topic are set to its beginning, and the closers start",
		least: 100 * time.Millisecond, most: time.Second, on: "closer",
		play: func(w *world, e event) error {
			return w.withoutGroup(e, "closer", func() error {
				return w.resetCommits(w.cfg.CloserGroup(), w.cfg.Topics.Close, (*kadm.Client).ListStartOffsets)
			})
		}},
	{name: "producer-time", does: "a delay topic takes the producers' timestamps instead of the brokers'; undone",
		least: 2 * time.Second, most: 5 * time.Second, on: onTopics, play: (*world).producerTime},
	{name: "add-partition", does: "each delay topic and the close topic get one more partition, which stays",
		least: 100 * time.Millisecond, most: time.Second, on: onTopics,
		play: func(w *world, e event) error { return w.addPartition(append(w.delayTopics(), w.cfg.Topics.Close)...) }},
	{name: "poison-flood", does: "3,000 records that cannot be read in delay topics and the close topic",
		least: time.Second, most: time.Second, on: onOrders, play: (*world).poison},
	{name: "huge-records", does: "40 records of 900 KB without a due time in a delay topic",
		least: time.Second, most: time.Second, on: onOrders, play: (*world).hugeRecords},
	{name: "duplicates", does: "the record of every unpaid order is sent again", least: time.Second, most: time.Second, on: onOrders, play: (*world).duplicates},
}

func (w *world) delayTopics() (all []string) {
	for _, b := range w.cfg.Buckets {
		all = append(all, b.Topic)
	}
	return all
}

func (w *world) topics() []string {
	t := w.cfg.Topics
	return append(w.delayTopics(), t.Close, t.DeadLetter, t.Events)
}

func (w *world) delayTopic(e event) string {
	return w.cfg.Buckets[e.N%uint64(len(w.cfg.Buckets))].Topic
}

func (w *world) relayGroup(e event) string {
	return w.cfg.RelayGroup(w.cfg.Buckets[e.N%uint64(len(w.cfg.Buckets))])
}

// recreate deletes a topic, waits, and creates it again. Other faults may make the brokers refuse for a while. It waits until all replicas are in sync:
// if a topic is deleted of which a replica is not, the controllers of Kafka 4.1.0 remember that replica, and its broker can never start again ("existed
// in isrMembers, but not in the topics map").
func (w *world) recreate(e event, topic string) error {
	if err := w.eventually(func() error { return w.inSync(topic) }); err != nil {
		return err
	}
	if err := w.eventually(func() error { return drop.Topics(w.ctx, w.kafka, topic) }); err != nil {
		return err
	}
	w.hold(e)
	return w.eventually(func() error {
		if err := w.apply(); err != nil {
			return err
		}
		_, _, err := w.kafka.Bounds(w.ctx, topic, 0)
		return err
	})
}

// withoutGroup stops a stage in order, does something to its group, and starts the stage again.
func (w *world) withoutGroup(e event, role string, do func() error) error {
	var errs []error
	for _, p := range w.parts[role] {
		_ = p.End(syscall.SIGTERM, 0)
	}
	// A process that could not say goodbye stays a member until its session ends.
	errs = append(errs, w.eventually(do))
	w.hold(e)
	for _, p := range w.parts[role] {
		errs = append(errs, p.Start())
	}
	return errors.Join(errs...)
}

func (w *world) producerTime(e event) error {
	topic := w.delayTopic(e)
	set := func(value string) error {
		return w.eventually(func() error { return w.alterConfigs("message.timestamp.type", value, topic) })
	}
	if err := set("CreateTime"); err != nil {
		return err
	}
	w.hold(e)
	return set("LogAppendTime")
}

func (w *world) poison(e event) error {
	topics := append(w.delayTopics(), w.cfg.Topics.Close)
	due := fmt.Sprint(time.Now().Add(time.Second).UnixMilli())
	var all []*kgo.Record
	for n := range 3000 {
		r := &kgo.Record{Topic: topics[n%len(topics)], Key: fmt.Appendf(nil, "poison-%d-%d", e.N, n), Value: []byte(`{"order_id":`),
			Headers: headers("due", due, "v", "1")}
		all = append(all, r)
		if r.Topic == w.cfg.Topics.Close { // a due time ahead would look like an early close
			r.Headers = headers("due", "1", "v", "1")
			continue
		}
		switch n % 5 {
		case 0:
			r.Key = nil
		case 1:
			r.Headers = headers("v", "1") // without a due time
		case 2:
			r.Headers = headers("due", "tomorrow", "v", "1")
		case 3:
			r.Headers = headers("due", "253402300799000", "v", "1") // the year 9999
		}
	}
	return w.send(all)
}

// headers returns headers from their keys and values.
func headers(all ...string) (headers []kgo.RecordHeader) {
	for pair := range slices.Chunk(all, 2) {
		headers = append(headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
	}
	return headers
}

// poisonCauses are the causes of the dead letters of poison and hugeRecords.
var poisonCauses = []string{"no_key", "bad_due", "due_too_far", "bad_value"}

func (w *world) hugeRecords(e event) error {
	junk := make([]byte, 900_000)
	for i := range junk {
		junk[i] = byte('a' + (i*i+i)%26)
	}
	topic := w.delayTopic(e)
	for n := range 40 {
		if err := w.send([]*kgo.Record{{Topic: topic, Key: fmt.Appendf(nil, "huge-%d-%d", e.N, n), Value: junk, Headers: headers("v", "1")}}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) duplicates(event) error {
	return w.eventually(func() error { return w.resend() })
}

// resend puts a schedule of each unpaid order into the outbox.
func (w *world) resend() error {
	d := w.cluster.kind
	_, err := w.shop.db.ExecContext(w.ctx, `INSERT INTO outbox_schedules (order_id, payload, created_at)
		SELECT o.id, CONCAT('{"order_id":"', o.id, '","category":"', o.category, '","created_at":"', `+d.iso("o.created_at")+`,
			'","due_at":"', `+d.iso("o.expire_at")+`, '"}'), `+d.now+` FROM orders o WHERE o.status = 0`)
	return err
}
