package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// How long records are kept. A delay topic keeps them for its bucket and a week, so that a relay that was down over a long weekend finds everything. The
// close topic keeps them for a week, which is how far back a replay can reach. Events are kept for a week, in which their readers can catch up. Dead
// letters are kept longer, until a person has looked at them.
const (
	week                = 7 * 24 * time.Hour
	deadLetterRetention = 90 * 24 * time.Hour
)

// TopicSpecs returns the required properties of the topics. Topics that are searched by time are stamped by the brokers. Events are too: an audit
// searches them by time and must not depend on a dispatcher's clock.
func TopicSpecs(c *config.Config) []kafka.TopicSpec {
	spec := func(name, group string, retention time.Duration, brokerTime bool) kafka.TopicSpec {
		return kafka.TopicSpec{
			Name: name, Group: group, Partitions: c.Partitions, Replication: c.Replication, FlushMessages: c.FlushMessages(name),
			Retention: retention, BrokerTime: brokerTime,
		}
	}
	var specs []kafka.TopicSpec
	for _, b := range c.Buckets {
		bucket := spec(b.Topic, c.RelayGroup(b), b.Length+week, true)
		bucket.Adopt = true
		specs = append(specs, bucket)
	}
	dead := spec(c.Topics.DeadLetter, "", deadLetterRetention, false)
	dead.Partitions = 1 // few records, read by people
	control := spec(c.Topics.Control, "", week, true)
	control.Partitions, control.MaxBytes = 1, wire.MaxControl // a few records a minute, small ones
	return append(specs, spec(c.Topics.Close, c.CloserGroup(), week, true),
		dead, spec(c.Topics.Events, "", week, true), control)
}

// OrderTopics returns the topics that may have records of an order: the delay topics of the configured buckets, shortest first; delay topics that are
// not in the configuration, by name; the close topic, the dead letters and the events. It leaves out delay topics that do not exist. If Kafka cannot
// list the delay topics, it returns an error, with the topics of the configuration.
func OrderTopics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) ([]HistoryTopic, error) {
	served, err := Served(ctx, k, cfg)
	if err != nil {
		err = fmt.Errorf("list the delay topics that are not in topics.yaml: %w", err)
	}
	var all []HistoryTopic
	for _, b := range served {
		if there, failed := k.Exists(ctx, b.Topic); failed == nil && !there {
			continue
		}
		all = append(all, HistoryTopic{Topic: b.Topic, Kind: KindBucket, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all,
		HistoryTopic{Topic: cfg.Topics.Close, Kind: KindClose, Group: cfg.CloserGroup()},
		HistoryTopic{Topic: cfg.Topics.DeadLetter, Kind: KindDeadLetters},
		HistoryTopic{Topic: cfg.Topics.Events, Kind: KindEvents},
	), err
}

// WaitingTopics returns the topics in which records wait: the delay topics of the configured
// buckets and of other buckets that still hold records, shortest bucket first, then the close
// topic. It returns no error of Kafka: other buckets are then left out, and ReadStatus reports the same error for each topic.
func WaitingTopics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) []TopicGroup {
	buckets, _ := Served(ctx, k, cfg) // otherwise each topic reports the same problem
	var all []TopicGroup
	for _, b := range buckets {
		all = append(all, TopicGroup{Topic: b.Topic, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all, TopicGroup{Topic: cfg.Topics.Close, Group: cfg.CloserGroup()})
}
