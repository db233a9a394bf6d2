package pipeline

import (
	"context"
	"slices"
	"sync"

	"github.com/orderclose/orderclose/internal/ops/deadletters"
)

// watchDeadLetters updates the metric of pending dead letters until stop is called. It does
// nothing without Kafka, and without a closer or compensator. No role depends on it.
func (a *App) watchDeadLetters(ctx context.Context, roles []Role) (stop func()) {
	if a.conns.Kafka == nil || !slices.Contains(roles, Closer) && !slices.Contains(roles, Compensator) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		deadletters.Watch(ctx, deadletters.WatchOptions{
			Log:    a.conns.Kafka,
			Topic:  a.o.Config.Topics.DeadLetter,
			Report: func(s deadletters.State) { a.metrics.DeadLettersPending(s.Pending, s.Oldest, s.At) },
			Logger: a.o.Logger,
		})
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
