package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"orderclose/internal/partition"
)

// Commit is what a group has committed of one partition.
type Commit struct {
	Offset   int64  // everything below is done; negative if nothing was committed
	Metadata string // what the committer said beside it
	// OldLog is set if the commit is of a log that is gone: the topic was deleted and
	// recreated since. Its offset means nothing in the present log.
	OldLog bool
}

// FirstWaiting returns the offset of the first record of a partition that is not
// known to be done, in a log that goes from logStart to end. If the commit is of an old
// log, or past the end, all of the log waits. Pure.
func FirstWaiting(c Commit, logStart, end int64) int64 {
	if c.OldLog || c.Offset > end {
		return logStart
	}
	return max(c.Offset, logStart)
}

// Waiting returns how many offsets from FirstWaiting to end are not known to be
// done: what was acked out of order stands in the commit's metadata. Pure.
func Waiting(c Commit, logStart, end int64) int64 {
	return WaitingBelow(c, logStart, end, end)
}

// WaitingBelow returns how many of the Waiting stand below an offset. Pure.
func WaitingBelow(c Commit, logStart, end, below int64) int64 {
	below = min(below, end)
	first := FirstWaiting(c, logStart, end)
	waiting := below - first
	if first == c.Offset && !c.OldLog {
		for _, r := range partition.DecodeRuns(c.Offset, c.Metadata) {
			waiting -= max(min(r.End, below)-r.First, 0)
		}
	}
	return max(waiting, 0)
}

// coordinatorPatience is how long a group's coordinator may be moving, or a fresh
// broker be finding out that it is one, before that is an error.
const coordinatorPatience = 5 * time.Second

// askCoordinator asks something of a group's coordinator, and again while there is
// none.
func askCoordinator(ctx context.Context, ask func() error) error {
	began, pauses := time.Now(), partition.NewBackOff()
	for {
		err := ask()
		moving := errors.Is(err, kafka.NotCoordinatorForGroup) || errors.Is(err, kafka.GroupCoordinatorNotAvailable) || errors.Is(err, kafka.GroupLoadInProgress)
		if !moving || time.Since(began) > coordinatorPatience || !partition.Sleep(ctx, pauses.NextBackOff()) {
			return err
		}
	}
}

// commitOf returns what the group has committed of one partition.
func (c *Cluster) commitOf(ctx context.Context, group, topic string, partition int) (Commit, error) {
	commits, err := c.commits(ctx, group, topic, partition+1)
	if err != nil {
		return Commit{}, err
	}
	return commits[partition], nil
}

// Commits returns what the group has committed of each of the n partitions of
// the topic, and which of that is of an old log. A group that nobody has heard of has
// committed nothing.
func (c *Cluster) Commits(ctx context.Context, group, topic string, n int) ([]Commit, error) {
	commits, err := c.commits(ctx, group, topic, n)
	var id [16]byte // of the topic; it is asked for if a commit names one
	for i := 0; err == nil && i < n; i++ {
		of := partition.DecodeLog(commits[i].Metadata).Topic
		if of == noTopicID {
			continue
		}
		if id == noTopicID {
			if id, err = c.idOf(ctx, topic); err != nil || id == noTopicID {
				break
			}
		}
		commits[i].OldLog = of != id
	}
	return commits, err
}

// commits is Commits that does not compare logs: who reads on from a commit finds out.
func (c *Cluster) commits(ctx context.Context, group, topic string, n int) ([]Commit, error) {
	var res *kafka.OffsetFetchResponse
	err := askCoordinator(ctx, func() (err error) {
		res, err = c.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: sequence(n)}})
		if err == nil {
			err = res.Error
		}
		return err
	})
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
			commits[p.Partition] = Commit{Offset: p.CommittedOffset, Metadata: p.Metadata}
		}
	}
	return commits, nil
}

// Position returns what the group has committed of one partition, negative if
// nothing.
func (c *Cluster) Position(ctx context.Context, group, topic string, partition int) (int64, error) {
	commit, err := c.commitOf(ctx, group, topic, partition)
	return commit.Offset, err
}

// SetPosition commits for a group that has no members: for who follows a partition
// without sharing it.
func (c *Cluster) SetPosition(ctx context.Context, group, topic string, partition int, offset int64) error {
	err := askCoordinator(ctx, func() error {
		res, err := c.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
			GroupID: group, GenerationID: -1, // of no generation
			Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: partition, Offset: offset}}},
		})
		if err != nil {
			return err
		}
		for _, p := range res.Topics[topic] {
			if p.Error != nil {
				return p.Error
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("commit of group %s for %s/%d: %w", group, topic, partition, err)
	}
	return nil
}
