package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"
)

// CheckVisible is Check for a user who may not see everything. It compares what the user may
// see. It returns an AccessError in unseen for each topic or setting that is hidden, instead
// of failing. A hidden topic counts as existing. If the settings are hidden, only partitions
// and replication are compared.
func (c *Cluster) CheckVisible(ctx context.Context, specs []TopicSpec) (findings []Finding, unseen []error, err error) {
	seen := slices.DeleteFunc(slices.Clone(specs), func(spec TopicSpec) bool {
		_, err := c.transport.describe(ctx, topic.recent, spec.Name)
		if hiddenTopic(err) {
			unseen = append(unseen, fmt.Errorf("topic %s: %w", spec.Name, err))
		}
		return hiddenTopic(err)
	})
	findings, err = c.Check(ctx, seen)
	if !hiddenTopic(err) {
		return findings, unseen, err
	}
	states, failed := c.shapes(ctx, topicNames(seen)) // without settings
	drift := slices.DeleteFunc(Drift(seen, states), func(f Finding) bool { return f.By.Key != "" })
	return drift, append(unseen, err), failed
}

// hiddenTopic reports whether err means that this user may not see a topic or its settings.
func hiddenTopic(err error) bool {
	var access *AccessError
	return errors.As(err, &access) && errors.Is(err, kafka.TopicAuthorizationFailed)
}
