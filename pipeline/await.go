package pipeline

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// checkTimeout bounds one check of a server.
const checkTimeout = 10 * time.Second

// warnInterval is the interval at which the log repeats a warning.
const warnInterval = 30 * time.Second

// need is what a role waits for before it runs. check returns nil when it is there. It is repeated until then, and
// /-/ready shows name and its error.
type need struct {
	name  string
	check func(ctx context.Context) error
}

func (a *App) needKafka() need {
	return need{name: "kafka", check: func(ctx context.Context) error { return a.conns.Kafka.Ping(ctx) }}
}

// needTopic is for a topic without which a part cannot start. A part uses every other
// topic as soon as the topic exists; see topicWaiter.
func (a *App) needTopic(topic string) need {
	return need{name: "topic " + topic, check: func(ctx context.Context) error { return a.exists(ctx, topic) }}
}

// errNoTopic is the error for a topic that does not exist, with a hint.
var errNoTopic = errors.New("does not exist: run orderclose topics apply, or call App.CreateTopics")

// exists returns nil if the topic exists.
func (a *App) exists(ctx context.Context, topic string) error {
	there, err := a.conns.Kafka.Exists(ctx, topic)
	if err == nil && !there {
		err = errNoTopic
	}
	return err
}

func (a *App) needDatabase() need { return need{name: "database", check: a.checkSchema} }

// needOrders is for parts that read the orders' tables. The outbox does not: its database user
// needs no privilege on them.
func (a *App) needOrders() need {
	return need{name: "tables of orders", check: func(ctx context.Context) error {
		err := a.checkOrders(ctx)
		if err == nil && a.closesInDatabase() {
			err = a.conns.Store.NotReadOnly(ctx)
		}
		return err
	}}
}

// CheckDatabase returns an error if the database cannot be used: it does not answer, its
// schema has another version, or the orders' tables do not fit the mapping. It also returns an
// error if the App has no database. It only reads.
func (a *App) CheckDatabase(ctx context.Context) error {
	if a.conns.Store == nil {
		return errNoDatabase
	}
	if err := a.checkSchema(ctx); err != nil || a.conns.Store.OwnStore() {
		return err
	}
	return a.checkOrders(ctx)
}

func (a *App) checkOrders(ctx context.Context) error {
	err := cmp.Or(a.conns.Store.CheckMapping(ctx), a.conns.Store.CheckDelays(ctx))
	if err != nil || !a.closesInDatabase() {
		return err
	}
	// What the orders hold keeps a program from its start only before the first close: later a few rows must not stop all others.
	if closed, err := a.conns.Store.HasClosed(ctx); err != nil || closed { // without the schema there is another error
		return nil
	}
	return a.conns.Store.CheckFilled(ctx)
}

func (a *App) checkSchema(ctx context.Context) error {
	if err := a.conns.Store.Ping(ctx); err != nil {
		return err
	}
	return a.conns.Store.Migrated(ctx)
}

// await repeats the check of n until it succeeds, and returns nil; it returns an error when ctx
// ends. Meanwhile missing, which /-/ready shows, has the error, and the log repeats it every 30 s,
// with warning as the message. pause is the shortest time between two checks. Also a refused password,
// a missing privilege, an old schema or an unknown host may be right a moment later.
func (a *App) await(ctx context.Context, n need, missing *reasons, warning string, pause time.Duration) error {
	pauses := retry.NewBackOff()
	var lastWarning time.Time
	for {
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		err := n.check(limited)
		cancel()
		if err == nil {
			missing.remove(n.name)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		missing.add(n.name, err.Error())
		if time.Since(lastWarning) >= warnInterval {
			lastWarning = time.Now()
			a.o.Logger.Warn(warning, "name", n.name, "err", err)
		}
		if !retry.Sleep(ctx, max(pauses.NextBackOff(), pause)) {
			return ctx.Err()
		}
	}
}

// topicPollInterval is the interval at which a topicWaiter checks for a missing topic.
const topicPollInterval = 2 * time.Second

// topicWaiter is a Kafka log that delays Consume until the topic exists. A stage starts with
// the topics that exist, and one missing topic, such as that of a bucket that was just
// added to topics.yaml, does not stop the others.
type topicWaiter struct {
	*kafka.Cluster
	app *App
}

// Consume implements Log of the stages. It joins the group as soon as the topic exists.
// Until then /-/ready shows a hint.
func (k topicWaiter) Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error {
	exists := k.app.needTopic(topic)
	defer k.app.ready.hints.remove(exists.name)
	if k.app.await(ctx, exists, &k.app.ready.hints, "not serving a topic yet, serving all others", topicPollInterval) != nil {
		return nil
	}
	return k.Cluster.Consume(ctx, group, topic, serve)
}
