package pipeline

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

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
