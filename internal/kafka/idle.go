package kafka

import (
	"context"
	"fmt"
	"time"
)

// Exists says whether there is such a topic. One that we may not look at is taken
// to be there: whoever appends to it will hear.
func (c *Cluster) Exists(ctx context.Context, topic string) (bool, error) {
	meta, err := c.metadata(ctx, topic)
	if hiddenTopic(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("topic %s: %w", topic, err)
	}
	for _, t := range meta.Topics {
		if t.Name == topic && t.Error == nil && len(t.Partitions) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// Holds counts the offsets of a topic that the group has not dealt with.
func (c *Cluster) Holds(ctx context.Context, group, topic string) (int64, error) {
	return c.sum(ctx, group, topic, Waiting)
}

// UsedSince says whether anything was appended to a topic at t or later, by the
// brokers' clock, which its records are stamped by.
func (c *Cluster) UsedSince(ctx context.Context, topic string, t time.Time) (bool, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return false, err
	}
	for p := range n {
		at, err := c.OffsetAt(ctx, topic, p, t)
		if err != nil {
			return false, err
		}
		if _, end, err := c.Bounds(ctx, topic, p); err != nil || at < end {
			return err == nil, err
		}
	}
	return false, nil
}
