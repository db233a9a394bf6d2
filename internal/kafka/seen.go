package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
)

// CheckSeen is Check for somebody who may not see everything: it compares what
// can be seen, and returns what cannot, as AccessErrors, instead of failing. A
// topic that is hidden from us is not missing; one whose settings are is compared
// but for them.
func (c *Cluster) CheckSeen(ctx context.Context, specs []TopicSpec) (findings []Finding, unseen []error, err error) {
	var seen []TopicSpec
	for _, spec := range specs {
		if _, err := c.metadata(ctx, spec.Name); hiddenTopic(err) {
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

// checkShape compares all but settings.
func (c *Cluster) checkShape(ctx context.Context, specs []TopicSpec) ([]Finding, error) {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	meta, err := c.metadata(ctx, names...)
	if err != nil {
		return nil, err
	}
	states := map[string]TopicState{}
	for _, t := range meta.Topics {
		if t.Error == nil && len(t.Partitions) > 0 {
			states[t.Name] = TopicState{Exists: true, Partitions: len(t.Partitions), Replication: len(t.Partitions[0].Replicas)}
		}
	}
	var findings []Finding
	for _, f := range Drift(specs, states) {
		if f.By.Key == "" {
			findings = append(findings, f)
		}
	}
	return findings, nil
}

// hiddenTopic says whether we lack the access to look at a topic or its settings.
func hiddenTopic(err error) bool {
	var access *AccessError
	return errors.As(err, &access) && errors.Is(err, kafka.TopicAuthorizationFailed)
}
