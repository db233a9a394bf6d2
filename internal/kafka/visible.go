package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
)

// CheckVisible is Check for a user who may not see everything. It compares what the user may
// see. It returns an AccessError in unseen for each topic or setting that is hidden, instead
// of failing. A hidden topic counts as existing. If the settings are hidden, only partitions
// and replication are compared.
func (c *Cluster) CheckVisible(ctx context.Context, specs []TopicSpec) (findings []Finding, unseen []error, err error) {
	var seen []TopicSpec
	for _, spec := range specs {
		if _, err := c.transport.describe(ctx, topic.recent, spec.Name); hiddenTopic(err) {
			unseen = append(unseen, fmt.Errorf("topic %s: %w", spec.Name, err))
		} else if err != nil {
			return nil, nil, fmt.Errorf("topic %s: %w", spec.Name, err)
		} else {
			seen = append(seen, spec)
		}
	}
	if len(seen) == 0 {
		return nil, unseen, nil
	}
	findings, err = c.Check(ctx, seen)
	if !hiddenTopic(err) {
		return findings, unseen, err
	}
	unseen = append(unseen, err)
	findings, err = c.checkShape(ctx, seen)
	return findings, unseen, err
}

// checkShape compares partitions and replication, but no settings.
func (c *Cluster) checkShape(ctx context.Context, specs []TopicSpec) ([]Finding, error) {
	states, err := c.shapes(ctx, topicNames(specs))
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, f := range Drift(specs, states) {
		if f.By.Key == "" {
			findings = append(findings, f)
		}
	}
	return findings, nil
}

// hiddenTopic reports whether err means that this user may not see a topic or its settings.
func hiddenTopic(err error) bool {
	var access *AccessError
	return errors.As(err, &access) && errors.Is(err, kafka.TopicAuthorizationFailed)
}
