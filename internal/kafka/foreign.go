package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"
)

// Foreign reports whether a topic may belong to somebody else: it holds records, and the group has
// committed nothing there. The group may be "".
func (c *Cluster) Foreign(ctx context.Context, topic, group string) (bool, error) {
	spans, err := c.Window(ctx, topic, LogStart, LogEnd)
	if err != nil || len(spans) == 0 || group == "" {
		return len(spans) > 0, err
	}
	committed, err := c.HasCommitted(ctx, group, topic)
	return !committed, err
}

// protect takes the changes out of the findings about foreign topics, except those that the
// operator has named. A topic is also left alone if this user may not see whose it is.
func (c *Cluster) protect(ctx context.Context, specs []TopicSpec, findings []Finding) error {
	for _, spec := range specs {
		changes := func(f Finding) bool { return f.Topic == spec.Name && f.By != (Change{}) && !f.By.Create }
		if spec.Named || !slices.ContainsFunc(findings, changes) {
			continue
		}
		foreign, err := c.Foreign(ctx, spec.Name, spec.Group)
		why := "it holds records, and no commit shows that it is orderclose's"
		if access := (*AccessError)(nil); errors.As(err, &access) {
			foreign, err, why = true, nil, fmt.Sprintf("it is not known whether it is orderclose's (%v)", access)
		}
		if err != nil {
			return fmt.Errorf("find out whose topic %s is: %w", spec.Name, err)
		}
		for i := range findings {
			if foreign && changes(findings[i]) { //mutant:foreign-topic-changed
				findings[i].By = Change{}
				findings[i].Fix = fmt.Sprintf("the topic is left alone, because %s: correct the name in topics.yaml, "+
					"or change the topic with orderclose topics apply --change %s", why, spec.Name)
			}
		}
	}
	return nil
}

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
