package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

// Exists reports whether the topic exists. If this user may not see the topic, Exists
// returns true, and an append to it will report the missing access.
func (c *Cluster) Exists(ctx context.Context, topic string) (bool, error) {
	_, err := c.Partitions(ctx, topic)
	switch {
	case err == nil, hiddenTopic(err):
		return true, nil
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		return false, nil
	}
	return false, err
}

// WaitingIn returns the number of offsets of a topic that the group has not done yet, as Waiting
// counts them, over all partitions.
func (c *Cluster) WaitingIn(ctx context.Context, group, topic string) (int64, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return 0, err
	}
	commits, err := c.Commits(ctx, group, topic, n)
	if err != nil {
		return 0, err
	}
	all := int64(0)
	for p, a := range c.Offsets(ctx, OffsetQueries(topic, n, LogStart, LogEnd)) {
		if a.Err != nil {
			return 0, a.Err
		}
		all += Waiting(commits[p], a.Offsets[0], a.Offsets[1])
	}
	return all, nil
}

// UsedSince reports whether a record was appended to a topic at t or later. t is a time of
// the brokers' clock, because the brokers stamp the records.
func (c *Cluster) UsedSince(ctx context.Context, topic string, t time.Time) (bool, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return false, err
	}
	for _, a := range c.Offsets(ctx, OffsetQueries(topic, n, MomentOf(t), LogEnd)) {
		if a.Err != nil || a.Offsets[0] < a.Offsets[1] {
			return a.Err == nil, a.Err
		}
	}
	return false, nil
}
