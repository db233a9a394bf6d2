package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
)

// Commit is what a group has committed of one partition.
type Commit struct {
	Offset   int64  // everything below is done; negative if nothing was committed
	Metadata string // what the committer said beside it
}

// FirstWaiting returns the offset of the first record of a partition that is not
// known to be done, in a log that goes from logStart to end. A commit past the
// end is of a topic that was made anew: all of it waits. Pure.
//
// Some records above a commit may be done too. Nothing in the metadata says so
// yet: they count as waiting until the commit passes them.
func FirstWaiting(c Commit, logStart, end int64) int64 {
	if c.Offset > end {
		return logStart
	}
	return max(c.Offset, logStart)
}

// Commits returns what the group has committed of each of the n partitions of
// the topic. A group that nobody has heard of has committed nothing.
func (c *Cluster) Commits(ctx context.Context, group, topic string, n int) ([]Commit, error) {
	res, err := c.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: sequence(n)}})
	if err == nil {
		err = res.Error
	}
	if err != nil && !errors.Is(err, kafka.GroupIdNotFound) {
		return nil, fmt.Errorf("commits of group %s: %w", group, err)
	}
	commits := make([]Commit, n)
	for i := range commits {
		commits[i].Offset = -1
	}
	if err != nil {
		return commits, nil
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("commit of group %s for %s/%d: %w", group, topic, p.Partition, p.Error)
		}
		if p.Partition >= 0 && p.Partition < n {
			commits[p.Partition] = Commit{p.CommittedOffset, p.Metadata}
		}
	}
	return commits, nil
}
