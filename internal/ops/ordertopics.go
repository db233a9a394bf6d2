package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

// OrderTopics returns the topics that may have records of an order: the delay topics of the
// configured buckets, shortest first; delay topics that are not in the configuration, by name;
// the close topic, the replay topic, the dead letters and the events. It leaves out delay topics
// that do not exist. If Kafka cannot list the delay topics, it returns an error, with the topics
// of the configuration.
func OrderTopics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) ([]HistoryTopic, error) {
	names, err := k.TopicNames(ctx, cfg.Topics.DelayPrefix())
	if err != nil {
		err = fmt.Errorf("list the delay topics that are not in topics.yaml: %w", err)
	}
	slices.Sort(names)
	var all []HistoryTopic
	for _, b := range slices.Concat(cfg.Buckets, UnlistedBuckets(cfg, names)) {
		if err == nil && !slices.Contains(names, b.Topic) { // the list leaves out topics that we have no access to
			if there, failed := k.Exists(ctx, b.Topic); failed == nil && !there {
				continue
			}
		}
		all = append(all, HistoryTopic{Topic: b.Topic, Kind: KindBucket, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all,
		HistoryTopic{Topic: cfg.Topics.Close, Kind: KindClose, Group: cfg.CloserGroup()},
		HistoryTopic{Topic: cfg.Topics.Replay, Kind: KindReplay, Group: cfg.ReplayGroup()},
		HistoryTopic{Topic: cfg.Topics.DeadLetter, Kind: KindDeadLetters},
		HistoryTopic{Topic: cfg.Topics.Events, Kind: KindEvents},
	), err
}

// WaitingTopics returns the topics in which records wait: the delay topics of the configured
// buckets and of other buckets that still hold records, shortest bucket first, then the close
// topic and the replay topic. It returns no error of Kafka: other buckets are then left out, and
// ReadStatus reports the same error for each topic.
func WaitingTopics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) []TopicGroup {
	buckets := slices.Clone(cfg.Buckets)
	if names, err := k.TopicNames(ctx, cfg.Topics.DelayPrefix()); err == nil { // otherwise each topic reports the same problem
		for _, b := range UnlistedBuckets(cfg, names) {
			if holds, err := WaitingUnlisted(ctx, k, cfg, b); err == nil && holds > 0 {
				buckets = append(buckets, b)
			}
		}
	}
	slices.SortFunc(buckets, func(a, b orderclose.Bucket) int { return cmp.Compare(a.Length, b.Length) })
	var all []TopicGroup
	for i, b := range buckets {
		all = append(all, TopicGroup{Topic: b.Topic, Group: cfg.RelayGroup(b), Length: b.Length, Whole: i == 0})
	}
	return append(all, TopicGroup{Topic: cfg.Topics.Close, Group: cfg.CloserGroup()},
		TopicGroup{Topic: cfg.Topics.Replay, Group: cfg.ReplayGroup()})
}
