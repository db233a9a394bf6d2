package pipeline

import (
	"context"
	"slices"

	"github.com/orderclose/orderclose/internal/ops/deadletters"
)

// watchDeadLetters updates the metric of pending dead letters until ctx ends. It does
// nothing without Kafka, and without a closer or compensator. No role depends on it.
func (a *App) watchDeadLetters(ctx context.Context, roles []Role) {
	if a.conns.Kafka == nil || !slices.Contains(roles, Closer) && !slices.Contains(roles, Compensator) {
		return
	}
	deadletters.Watch(ctx, a.conns.Kafka, a.o.Config.Topics.DeadLetter, a.o.Logger, a.metrics.DeadLettersPending)
}
