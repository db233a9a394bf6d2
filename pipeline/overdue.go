package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// recordsInterval is the interval between a compensator's checks of the waiting records.
	recordsInterval = time.Minute
	// recordsTimeout bounds one check. A partition that has not answered by then is unknown.
	recordsTimeout = 30 * time.Second
)

// watchDeadLetters updates the metric of pending dead letters until ctx ends.
func (a *App) watchDeadLetters(ctx context.Context) {
	deadletters.Watch(ctx, a.conns.Kafka, a.o.Config.Topics.DeadLetter, a.o.Logger, a.metrics.DeadLettersPending)
}

// watchRecords checks each minute which records wait and which are overdue,
// until ctx ends. Relays and closers report how far behind they are by their own state. This
// check also finds records that a relay or closer has lost track of.
func (a *App) watchRecords(ctx context.Context) {
	for retry.Sleep(ctx, recordsInterval) {
		a.checkRecords(ctx)
	}
}

func (a *App) checkRecords(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, recordsTimeout)
	defer cancel()
	now := a.o.Now
	if now == nil {
		now = time.Now
	}
	replay := a.config().Topics.Replay // its records are overdue from the start and may wait
	targets := slices.DeleteFunc(ops.WaitingTopics(looking, a.conns.Kafka, a.config()), func(p ops.TopicGroup) bool { return p.Topic == replay })
	r := ops.ReadStatus(looking, a.conns.Kafka, targets, now)
	if ctx.Err() != nil {
		return
	}
	a.metrics.Waiting(r)
	if worst, found := r.Worst(ops.OverdueLimit); found {
		a.o.Logger.Error("records are overdue: run orderclose status", "topic", worst.Topic.Topic, "partition", worst.Partition.Partition,
			"offset", worst.Record().Offset, "overdue", time.Duration(worst.Partition.Overdue*float64(time.Second)).Round(time.Second), "partitions", worst.Count)
	}
}
