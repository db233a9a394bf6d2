package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
)

// OrderTopics returns the topics that records of an order pass, in that order. It includes
// delay topics that are not in the configuration, and leaves out delay topics that do not
// exist. If Kafka cannot list the delay topics, it returns the other topics with an error.
func OrderTopics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) ([]ops.HistoryTopic, error) {
	names, err := k.TopicNames(ctx, cfg.Topics.DelayPrefix())
	if err != nil {
		err = fmt.Errorf("list the delay topics that are not in topics.yaml: %w", err)
	}
	slices.Sort(names)
	var all []ops.HistoryTopic
	for _, b := range slices.Concat(cfg.Buckets, unlisted(cfg, names)) {
		if err == nil && !slices.Contains(names, b.Topic) { // the list leaves out topics that we have no access to
			if there, failed := k.Exists(ctx, b.Topic); failed == nil && !there {
				continue
			}
		}
		all = append(all, ops.HistoryTopic{Topic: b.Topic, Kind: ops.KindBucket, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all,
		ops.HistoryTopic{Topic: cfg.Topics.Close, Kind: ops.KindClose, Group: cfg.CloserGroup()},
		ops.HistoryTopic{Topic: cfg.Topics.Replay, Kind: ops.KindReplay, Group: cfg.ReplayGroup()},
		ops.HistoryTopic{Topic: cfg.Topics.DeadLetter, Kind: ops.KindDeadLetters},
		ops.HistoryTopic{Topic: cfg.Topics.Events, Kind: ops.KindEvents},
	), err
}

// investigator returns the search for the reasons why orders were missed. It reads topics
// with few waiting records first.
func (a *App) investigator() *ops.Investigator {
	c := a.o.Config.Compensator.Causes
	o := ops.InvestigatorOptions{Clock: a.o.Store.Now, MaxRecords: int64(c.Records), MaxTime: c.Time, Logger: a.o.Logger.With("stage", "compensator")}
	if schedules, ok := any(a.o.Store).(ops.Schedules); ok {
		o.Schedules = schedules
	}
	if a.o.Kafka == nil {
		return ops.NewInvestigator(o)
	}
	o.Log = a.o.Kafka
	o.Topics = func(ctx context.Context) ([]ops.HistoryTopic, error) {
		all, err := OrderTopics(ctx, a.o.Kafka, a.config())
		var first, buckets []ops.HistoryTopic
		for _, p := range all {
			switch p.Kind {
			case ops.KindBucket:
				buckets = append(buckets, p)
			case ops.KindClose, ops.KindReplay, ops.KindDeadLetters:
				first = append(first, p)
			}
		}
		return append(first, buckets...), err
	}
	return ops.NewInvestigator(o)
}
