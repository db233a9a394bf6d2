package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/internal/partition"
	"orderclose/internal/status"
)

const (
	// overdueEvery is how often a compensator looks for overdue records.
	overdueEvery = time.Minute
	// overdueTimeout bounds one look. What has not answered by then counts as not seen.
	overdueTimeout = 30 * time.Second
)

// WaitingPlaces are the topics that records wait in, in the order of their way: those of
// the configured buckets, those of other buckets that still hold records, the close topic
// and the replay topic.
func WaitingPlaces(ctx context.Context, k *kafka.Cluster, cfg *config.Config) []status.Place {
	buckets := slices.Clone(cfg.Buckets)
	if names, err := k.TopicNames(ctx, cfg.Topics.DelayPrefix()); err == nil { // else each topic has the problem
		for _, b := range unlisted(cfg, names) {
			if holds, err := k.Holds(ctx, cfg.RelayGroup(b), b.Topic); err == nil && holds > 0 {
				buckets = append(buckets, b)
			}
		}
	}
	slices.SortFunc(buckets, func(a, b orderclose.Bucket) int { return int(a.Length - b.Length) })
	var all []status.Place
	for i, b := range buckets {
		all = append(all, status.Place{Topic: b.Topic, Group: cfg.RelayGroup(b), Length: b.Length, Whole: i == 0})
	}
	return append(all, status.Place{Topic: cfg.Topics.Close, Group: cfg.CloserGroup()},
		status.Place{Topic: cfg.Topics.Replay, Group: cfg.ReplayGroup()})
}

// watchOverdue looks each minute for records that are overdue, beside a compensator, until
// what it returns is called. Relays and closers tell how far behind they are as they see
// it themselves; what one of them does not see, because it sleeps or has lost it, shows
// here.
func (a *App) watchOverdue(ctx context.Context, roles []Role) (stop func()) {
	if a.o.Kafka == nil || !slices.Contains(roles, Compensator) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for partition.Sleep(ctx, overdueEvery) {
			a.lookForOverdue(ctx)
		}
	})
	return func() { cancel(); watching.Wait() }
}

func (a *App) lookForOverdue(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, overdueTimeout)
	defer cancel()
	now := a.o.Now
	if now == nil {
		now = time.Now
	}
	replay := a.config().Topics.Replay // whose records are overdue from the start, and may wait
	places := slices.DeleteFunc(WaitingPlaces(looking, a.o.Kafka, a.config()), func(p status.Place) bool { return p.Topic == replay })
	r := status.Look(looking, a.o.Kafka, places, now)
	if ctx.Err() != nil {
		return
	}
	overdue := map[string]float64{}
	for _, t := range r.Topics {
		if t.Problem == "" {
			overdue[t.Topic] = t.Overdue()
		}
	}
	a.metrics.WaitingOverdue(overdue, r.Problems())
	if worst, found := r.Worst(status.OverdueLimit); found {
		a.o.Logger.Error("records are overdue: run orderclose status", "topic", worst.Topic.Topic, "partition", worst.Partition.Partition,
			"offset", worst.Record().Offset, "overdue", time.Duration(worst.Partition.Overdue*float64(time.Second)).Round(time.Second), "partitions", worst.Count)
	}
}
