package app

import (
	"context"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
	"orderclose/internal/partition"
)

// topicEvery is how often a topic is asked for that does not exist yet.
const topicEvery = 2 * time.Second

// appearing is Kafka for stages that begin with the topics that exist, and take up each
// other topic when it appears. So one topic that nobody has made yet, such as the one of
// a bucket that was just added to topics.yaml, stops none of the others.
type appearing struct {
	*kafka.Cluster
	app *App
}

// Consume implements Log of the stages. It joins the group as soon as the topic exists.
// Meanwhile the log says once that the topic is missing, and /-/ready hints at it.
func (k appearing) Consume(ctx context.Context, group, topic string, serve func(context.Context, orderclose.Claim)) error {
	if !k.app.awaitTopic(ctx, topic) {
		return nil
	}
	return k.Cluster.Consume(ctx, group, topic, serve)
}

// awaitTopic waits until the topic exists. It returns false when ctx ends.
func (a *App) awaitTopic(ctx context.Context, topic string) bool {
	hint, waited := "topic "+topic, false
	defer a.ready.Unhint(hint)
	for {
		asking, cancel := context.WithTimeout(ctx, checkTimeout)
		err := a.exists(asking, topic)
		cancel()
		if err == nil {
			if waited {
				a.o.Logger.Info("the topic exists now", "topic", topic)
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !waited {
			waited = true
			a.o.Logger.Warn("not serving a topic yet, all others go on", "topic", topic, "err", err)
		}
		a.ready.Hint(hint, err.Error())
		if !partition.Sleep(ctx, topicEvery) {
			return false
		}
	}
}
