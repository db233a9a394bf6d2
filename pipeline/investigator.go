package pipeline

import (
	"context"

	"github.com/orderclose/orderclose/internal/ops"
)

// investigator returns the search for the reasons why orders were missed. It reads topics
// with few waiting records first.
func (a *App) investigator(source sweepSource) *ops.Investigator {
	c := a.o.Config.Compensator.Causes
	i := &ops.Investigator{Clock: source.Now, MaxRecords: int64(c.Records), MaxTime: c.Time, Logger: a.o.Logger.With("stage", "compensator")}
	if schedules, ok := source.(ops.Schedules); ok {
		i.Schedules = schedules
	}
	if a.conns.Kafka == nil {
		return i
	}
	i.Log = a.conns.Kafka
	i.Topics = func(ctx context.Context) ([]ops.HistoryTopic, error) {
		all, err := ops.OrderTopics(ctx, a.conns.Kafka, a.config())
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
	return i
}
