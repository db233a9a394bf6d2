package pipeline

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// topicPollInterval is the interval at which awaitTopic checks for a missing topic.
const topicPollInterval = 2 * time.Second

// topicWaiter is a Kafka log that delays Consume until the topic exists. A stage starts with
// the topics that exist, and one missing topic, such as that of a bucket that was just
// added to topics.yaml, does not stop the others.
type topicWaiter struct {
	*kafka.Cluster
	app *App
}

// Consume implements Log of the stages. It joins the group as soon as the topic exists.
// Until then /-/ready shows a hint, and the log has one line.
func (k topicWaiter) Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error {
	if !k.app.awaitTopic(ctx, topic) {
		return nil
	}
	return k.Cluster.Consume(ctx, group, topic, serve)
}

// awaitTopic waits until the topic exists. It returns false when ctx ends.
func (a *App) awaitTopic(ctx context.Context, topic string) bool {
	hint, waited := "topic "+topic, false
	defer a.ready.hints.remove(hint)
	for {
		err := a.ask(ctx, a.needTopic(topic))
		if err == nil {
			if waited {
				a.o.Logger.Info("topic exists now", "topic", topic)
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !waited {
			waited = true
			a.o.Logger.Warn("not serving a topic yet, serving all others", "topic", topic, "err", err)
		}
		a.ready.hints.add(hint, err.Error())
		if !retry.Sleep(ctx, topicPollInterval) {
			return false
		}
	}
}
