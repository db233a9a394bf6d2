//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/testkit"
)

// Requests to Kafka that package kafka does not make, with a client that is independent of it.

// requestTime bounds one of these requests.
const requestTime = 10 * time.Second

// ask sends requests with a client of its own, directly to the brokers.
func (w *world) ask(send func(context.Context, *kadm.Client) error) error {
	client, err := kadm.NewOptClient(kgo.SeedBrokers(w.cluster.direct...))
	if err != nil {
		return err
	}
	defer client.Close()
	client.SetTimeoutMillis(8000)
	ctx, cancel := context.WithTimeout(w.ctx, requestTime)
	defer cancel()
	return send(ctx, client)
}

// alterConfigs sets a configuration of topics. Topics that do not exist at the moment are left out.
func (w *world) alterConfigs(key, value string, topics ...string) error {
	return w.ask(func(ctx context.Context, c *kadm.Client) error {
		altered, err := c.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: key, Value: &value}}, topics...)
		for _, r := range altered {
			if r.Err != nil && !errors.Is(r.Err, kerr.UnknownTopicOrPartition) {
				err = errors.Join(err, fmt.Errorf("%s=%s of %s: %w", key, value, r.Name, r.Err))
			}
		}
		return err
	})
}

// inSync returns an error if a replica of the topics is not in sync.
func (w *world) inSync(topics ...string) error {
	return w.ask(func(ctx context.Context, c *kadm.Client) error { return testkit.InSync(ctx, c, topics...) })
}

// moveLeaders makes the second replica of each partition the first, and elects it.
func (w *world) moveLeaders(e event, topics ...string) error {
	return w.eventually(func() error {
		var moved kadm.TopicsSet
		err := w.ask(func(ctx context.Context, c *kadm.Client) error {
			found, err := c.ListTopics(ctx, topics...)
			if err != nil {
				return err
			}
			var assignments kadm.AlterPartitionAssignmentsReq
			found.EachPartition(func(p kadm.PartitionDetail) {
				assignments.Assign(p.Topic, p.Partition, append(slices.Clone(p.Replicas[1:]), p.Replicas[0]))
			})
			moved = found.TopicsSet()
			_, err = c.AlterPartitionAssignments(ctx, assignments)
			return err
		})
		if err != nil {
			return err
		}
		w.hold(e)
		// A partition whose new leader is not in sync keeps its old one.
		return w.ask(func(ctx context.Context, c *kadm.Client) error {
			_, err := c.ElectLeaders(ctx, kadm.ElectPreferredReplica, moved)
			return err
		})
	})
}

// deleteRecords deletes every record of a topic.
func (w *world) deleteRecords(topic string) error {
	return w.eventually(func() error {
		return w.ask(func(ctx context.Context, c *kadm.Client) error { return testkit.DeleteRecords(ctx, c, topic) })
	})
}

// resetCommits sets the commits of a group without members.
func (w *world) resetCommits(group, topic string, list testkit.OffsetLister) error {
	return w.ask(func(ctx context.Context, c *kadm.Client) error { return testkit.SetCommits(ctx, c, group, topic, list) })
}

// maxPartitions bounds what addPartition adds.
const maxPartitions = 8

// addPartition adds a partition to each topic. A topic that does not exist at the moment gets none.
func (w *world) addPartition(topics ...string) error {
	return w.eventually(func() error {
		return w.ask(func(ctx context.Context, c *kadm.Client) error {
			found, err := c.ListTopics(ctx, topics...)
			if err != nil {
				return err
			}
			small := slices.DeleteFunc(found.Names(), func(name string) bool {
				return found[name].Err != nil || len(found[name].Partitions) >= maxPartitions
			})
			_, err = c.CreatePartitions(ctx, 1, small...)
			return err
		})
	})
}

// send appends records to a partition each, and waits until they are acked. If another fault makes a broker refuse, it sends all of them again.
func (w *world) send(all []*kgo.Record) error {
	return w.eventually(func() error {
		client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.direct...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.RecordDeliveryTimeout(time.Minute))
		if err != nil {
			return err
		}
		defer client.Close()
		return client.ProduceSync(w.ctx, all...).FirstErr()
	})
}
