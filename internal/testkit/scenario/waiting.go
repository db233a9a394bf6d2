package scenario

import (
	"cmp"
	"context"

	"github.com/orderclose/orderclose/internal/kafka"
)

// WaitingIn returns the number of offsets of a topic that the group has not done yet, as kafka.Waiting
// counts them, over all partitions.
func WaitingIn(ctx context.Context, c *kafka.Cluster, group, topic string) (int64, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return 0, err
	}
	commits, err := c.Commits(ctx, group, topic, n)
	if err != nil {
		return 0, err
	}
	all := int64(0)
	for p, bounds := range c.Offsets(ctx, kafka.OffsetQueries(topic, n, kafka.LogStart, kafka.LogEnd)) {
		if err = cmp.Or(err, bounds.Err); bounds.Err == nil {
			all += kafka.Waiting(commits[p], bounds.Offsets[0], bounds.Offsets[1])
		}
	}
	return all, err
}
