package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orderclose/internal/partition"
)

// checkTimeout bounds one look at a server.
const checkTimeout = 10 * time.Second

// complainEvery is how often the log repeats what is being waited for.
const complainEvery = 30 * time.Second

// need is something that must be there before a part can begin.
type need struct {
	name  string
	check func(ctx context.Context) error
}

func (a *App) needKafka() need {
	return need{"kafka", func(ctx context.Context) error {
		if err := a.o.Kafka.Ping(ctx); err != nil {
			return err
		}
		findings, unseen, err := a.o.Kafka.CheckSeen(ctx, TopicSpecs(a.o.Config))
		if err != nil {
			return err
		}
		var missing []error
		for _, f := range findings {
			if f.By.Create {
				missing = append(missing, fmt.Errorf("topic %s %s", f.Topic, f.What))
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("run orderclose topics apply: %w", errors.Join(missing...))
		}
		// No reason to wait: a part needs less to do its work than to look at topics,
		// and what it does lack it says when it needs it.
		for _, u := range unseen {
			a.o.Logger.Warn("not everything about the topics can be checked", "err", u)
		}
		for _, f := range findings {
			a.o.Logger.Warn("a topic is not as it should be: run orderclose topics check", "topic", f.Topic, "what", f.What)
		}
		return nil
	}}
}

func (a *App) needDatabase() need {
	return need{"database", func(ctx context.Context) error {
		if err := a.o.Store.Ping(ctx); err != nil {
			return err
		}
		if err := a.o.Store.Migrated(ctx); err != nil {
			return err
		}
		return a.o.Store.CheckMapping(ctx)
	}}
}

// await asks for what is needed until it is there, or reports false when ctx
// ends. Meanwhile /-/ready says what is missing, and the log does now and then.
func (a *App) await(ctx context.Context, n need) bool {
	pauses := partition.NewBackOff()
	var complained time.Time
	for {
		err := a.ask(ctx, n)
		if err == nil {
			a.ready.Done(n.name)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		a.ready.Wait(n.name, err.Error())
		if time.Since(complained) >= complainEvery {
			complained = time.Now()
			a.o.Logger.Warn("waiting for "+n.name, "err", err)
		}
		if !partition.Sleep(ctx, pauses.NextBackOff()) {
			return false
		}
	}
}

func (a *App) ask(ctx context.Context, n need) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return n.check(ctx)
}
