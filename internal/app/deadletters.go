package app

import (
	"context"
	"slices"
	"sync"

	"orderclose/internal/deadletters"
)

// watchDeadLetters keeps the metric of pending dead letters beside a closer or a
// compensator, if there is a Kafka to ask, and returns what ends that. No role
// rests on it: a sweep needs no Kafka.
func (a *App) watchDeadLetters(ctx context.Context, roles []Role) (stop func()) {
	if a.o.Kafka == nil || !slices.Contains(roles, Closer) && !slices.Contains(roles, Compensator) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		deadletters.Watch(ctx, deadletters.WatchOptions{
			Log:    a.o.Kafka,
			Topic:  a.o.Config.Topics.DeadLetter,
			Tell:   func(s deadletters.Seen) { a.metrics.DeadLettersPending(s.Pending, s.Oldest, s.At) },
			Logger: a.o.Logger,
		})
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
