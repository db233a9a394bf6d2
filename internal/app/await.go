package app

import (
	"context"
	"errors"
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
	return need{"kafka", func(ctx context.Context) error { return a.o.Kafka.Ping(ctx) }}
}

// needTopic is for a topic that a part cannot begin without. All others are taken up as
// they appear; see appearing.
func (a *App) needTopic(topic string) need {
	return need{"topic " + topic, func(ctx context.Context) error { return a.exists(ctx, topic) }}
}

// errNoTopic says what to do about a topic that does not exist.
var errNoTopic = errors.New("does not exist: run orderclose topics apply")

// exists returns nil if there is such a topic.
func (a *App) exists(ctx context.Context, topic string) error {
	there, err := a.o.Kafka.Exists(ctx, topic)
	if err == nil && !there {
		err = errNoTopic
	}
	return err
}

func (a *App) needDatabase() need {
	return need{"database", a.CheckDatabase}
}

// CheckDatabase reports why the database cannot be worked with: it is away, its schema
// is another one, or the orders' tables are not as they are mapped. It only reads.
func (a *App) CheckDatabase(ctx context.Context) error {
	if err := a.o.Store.Ping(ctx); err != nil {
		return err
	}
	if err := a.o.Store.Migrated(ctx); err != nil {
		return err
	}
	return a.o.Store.CheckMapping(ctx)
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
