package app

import (
	"context"
	"fmt"
	"slices"

	"orderclose/internal/cause"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/internal/story"
)

// OrderTopics returns the topics that records of an order pass, in that order. It includes
// delay topics that are not in the configuration, and leaves out delay topics that do not
// exist. If Kafka cannot list the delay topics, it returns the other topics with an error.
func OrderTopics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) ([]story.Topic, error) {
	names, err := k.TopicNames(ctx, cfg.Topics.DelayPrefix())
	if err != nil {
		err = fmt.Errorf("list the delay topics that are not in topics.yaml: %w", err)
	}
	slices.Sort(names)
	var all []story.Topic
	for _, b := range slices.Concat(cfg.Buckets, unlisted(cfg, names)) {
		if err == nil && !slices.Contains(names, b.Topic) { // the list leaves out topics that we have no access to
			if there, failed := k.Exists(ctx, b.Topic); failed == nil && !there {
				continue
			}
		}
		all = append(all, story.Topic{Topic: b.Topic, Kind: story.Bucket, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all,
		story.Topic{Topic: cfg.Topics.Close, Kind: story.Close, Group: cfg.CloserGroup()},
		story.Topic{Topic: cfg.Topics.Replay, Kind: story.Replay, Group: cfg.ReplayGroup()},
		story.Topic{Topic: cfg.Topics.DeadLetter, Kind: story.Dead},
		story.Topic{Topic: cfg.Topics.Events, Kind: story.Events},
	), err
}

// investigator returns the search for the reasons why orders were missed. It reads topics
// with few waiting records first.
func (a *App) investigator() *cause.Investigator {
	c := a.o.Config.Compensator.Causes
	o := cause.Options{Clock: a.o.Store.Now, MaxRecords: int64(c.Records), MaxTime: c.Time, Logger: a.o.Logger.With("stage", "compensator")}
	if schedules, ok := any(a.o.Store).(cause.Schedules); ok {
		o.Schedules = schedules
	}
	if a.o.Kafka == nil {
		return cause.New(o)
	}
	o.Log = a.o.Kafka
	o.Topics = func(ctx context.Context) ([]story.Topic, error) {
		all, err := OrderTopics(ctx, a.o.Kafka, a.config())
		var first, buckets []story.Topic
		for _, p := range all {
			switch p.Kind {
			case story.Bucket:
				buckets = append(buckets, p)
			case story.Close, story.Replay, story.Dead:
				first = append(first, p)
			}
		}
		return append(first, buckets...), err
	}
	return cause.New(o)
}
