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

// OrderPlaces are the topics that an order's records go through, in the order of
// their way, those of buckets that the configuration does not list included, those of
// buckets that are not made yet left out. If Kafka does not tell which those are, it
// returns the others with the error.
func OrderPlaces(ctx context.Context, k *kafka.Cluster, cfg *config.Config) ([]story.Place, error) {
	names, err := k.TopicNames(ctx, cfg.Topics.DelayPrefix())
	if err != nil {
		err = fmt.Errorf("topics of buckets that are not listed: %w", err)
	}
	slices.Sort(names)
	var all []story.Place
	for _, b := range slices.Concat(cfg.Buckets, unlisted(cfg, names)) {
		if err == nil && !slices.Contains(names, b.Topic) { // or we may not see it in the list
			if there, failed := k.Exists(ctx, b.Topic); failed == nil && !there {
				continue
			}
		}
		all = append(all, story.Place{Topic: b.Topic, Kind: story.Bucket, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all,
		story.Place{Topic: cfg.Topics.Close, Kind: story.Close, Group: cfg.CloserGroup()},
		story.Place{Topic: cfg.Topics.Replay, Kind: story.Replay, Group: cfg.ReplayGroup()},
		story.Place{Topic: cfg.Topics.DeadLetter, Kind: story.Dead},
		story.Place{Topic: cfg.Topics.Events, Kind: story.Events},
	), err
}

// investigator finds out why orders were missed. What has few records that wait is
// looked at first.
func (a *App) investigator() *cause.Investigator {
	c := a.o.Config.Compensator.Causes
	o := cause.Options{Clock: a.o.Store.Now, Records: int64(c.Records), Time: c.Time, Logger: a.o.Logger.With("stage", "compensator")}
	if schedules, ok := any(a.o.Store).(cause.Schedules); ok {
		o.Schedules = schedules
	}
	if a.o.Kafka == nil {
		return cause.New(o)
	}
	o.Log = a.o.Kafka
	o.Places = func(ctx context.Context) ([]story.Place, error) {
		all, err := OrderPlaces(ctx, a.o.Kafka, a.config())
		var first, buckets []story.Place
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
