package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// Commit is what a group has committed for one partition.
type Commit struct {
	Offset   int64  // all records below it are done; negative: nothing was committed
	Metadata string // the metadata of the commit; see wire.EncodeRuns
}

// FirstWaiting returns the offset of the first record of a partition that is not known to
// be done, in a log from logStart to end. If the commit lies past the end, no record is known to be done. It makes no request.
func FirstWaiting(c Commit, logStart, end int64) int64 {
	if c.Offset > end {
		return logStart
	}
	return max(c.Offset, logStart)
}

// Waiting returns the number of offsets from FirstWaiting to end that are not known to be
// done. The offsets that were acked above the commit are in the commit's metadata. It
// makes no request.
func Waiting(c Commit, logStart, end int64) (waiting int64) {
	for _, gap := range Gaps(c, logStart, end) {
		waiting += gap.End - gap.First
	}
	return waiting
}

// Gaps returns the runs of offsets between FirstWaiting and end that are not known to be
// done, in order. The offsets that were acked above the commit are in the commit's metadata.
// It makes no request.
func Gaps(c Commit, logStart, end int64) (gaps []wire.Run) {
	at := FirstWaiting(c, logStart, end)
	if at == c.Offset {
		for _, r := range wire.DecodeRuns(c.Offset, c.Metadata) {
			if first := min(r.First, end); first > at {
				gaps = append(gaps, wire.Run{First: at, End: first})
			}
			at = max(at, r.End)
		}
	}
	if at < end {
		gaps = append(gaps, wire.Run{First: at, End: end})
	}
	return gaps
}

// coordinatorTimeout is how long a group may have no coordinator before that is an
// error: a coordinator may be moving, and a fresh broker may not know yet that it is one.
const coordinatorTimeout = 5 * time.Second

// askCoordinator calls ask, which sends a request to a group's coordinator. While the group
// has no coordinator, it retries.
func askCoordinator(ctx context.Context, ask func() error) error {
	return repeat(ctx, coordinatorTimeout, func(err error) bool { return errors.Is(err, errCoordinatorSilent) || noCoordinator(err) }, ask)
}

// noCoordinator reports whether a broker has answered that the group has no coordinator, or that it is not the
// coordinator, or not yet.
func noCoordinator(err error) bool {
	return errors.Is(err, kafka.NotCoordinatorForGroup) || errors.Is(err, kafka.GroupCoordinatorNotAvailable) || errors.Is(err, kafka.GroupLoadInProgress)
}

// repeat calls ask again, for up to limit, while passes is true for its error. Only repeat,
// Idempotent and memberships send a request again.
func repeat(ctx context.Context, limit time.Duration, passes func(error) bool, ask func() error) error {
	for began := time.Now(); ; {
		err := ask()
		// After this pause the topology is refreshed once more.
		if !passes(err) || time.Since(began) > limit || !retry.Sleep(ctx, minRefreshInterval) {
			return err
		}
	}
}

// Commits returns what the group has committed for each of the n partitions of the topic. A group that does not exist has committed
// nothing.
func (c *Cluster) Commits(ctx context.Context, group, topic string, n int) ([]Commit, error) {
	var res *kafka.OffsetFetchResponse
	err := askCoordinator(ctx, func() (err error) {
		res, err = c.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: sequence(n)}})
		if err == nil {
			err = c.transport.judge(about{protocol.OffsetFetch, topic, group}, res.Error)
		}
		return err
	})
	commits := slices.Repeat([]Commit{{Offset: -1}}, n)
	switch {
	case errors.Is(err, kafka.GroupIdNotFound):
		return commits, nil
	case err != nil:
		return nil, fmt.Errorf("commits of group %s: %w", group, err)
	}
	for _, p := range res.Topics[topic] {
		if err := c.transport.judge(about{protocol.OffsetFetch, topic, group}, p.Error); err != nil {
			return nil, fmt.Errorf("commit of group %s for %s/%d: %w", group, topic, p.Partition, err)
		}
		if p.Partition >= 0 && p.Partition < n {
			commits[p.Partition] = Commit{Offset: p.CommittedOffset, Metadata: p.Metadata}
		}
	}
	return commits, nil
}

// HasCommitted reports whether the group has committed an offset of any partition of the topic.
func (c *Cluster) HasCommitted(ctx context.Context, group, topic string) (bool, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return false, err
	}
	commits, err := c.Commits(ctx, group, topic, n)
	return slices.ContainsFunc(commits, func(commit Commit) bool { return commit.Offset >= 0 }), err
}

// SetPosition commits an offset for a group without members, for a reader that follows a
// partition alone.
func (c *Cluster) SetPosition(ctx context.Context, group, topic string, partition int, offset int64) error {
	err := askCoordinator(ctx, func() error {
		return c.commit(ctx, topic, []kafka.OffsetCommit{{Partition: partition, Offset: offset}}, kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1})
	})
	if err != nil {
		return fmt.Errorf("commit of group %s for %s: %w", group, topic, err)
	}
	return nil
}

// commitPartitions bounds a request: a broker refuses one whose metadata, wire.MaxCommitBytes for each partition, exceeds a batch of 1 MB.
const commitPartitions = 100

// commit commits offsets of a topic for the group and the member of the request.
func (c *Cluster) commit(ctx context.Context, topic string, offsets []kafka.OffsetCommit, req kafka.OffsetCommitRequest) (err error) {
	for some := range slices.Chunk(offsets, commitPartitions) {
		req.Topics = map[string][]kafka.OffsetCommit{topic: some}
		res, failed := c.client.OffsetCommit(ctx, &req)
		if failed != nil {
			return failed
		}
		for _, p := range res.Topics[topic] {
			if failed = c.transport.judge(about{protocol.OffsetCommit, topic, req.GroupID}, p.Error); failed != nil {
				err = fmt.Errorf("partition %d: %w", p.Partition, failed)
			}
		}
	}
	return err
}

// Group is a consumer group as its coordinator describes it.
type Group struct {
	// State is the coordinator's term: Stable, Empty, Dead (the group does not exist),
	// PreparingRebalance or CompletingRebalance.
	State   string
	Members []Member
}

// Member is a process in a group, and the partitions of one topic that it owns.
type Member struct {
	ID         string `json:"member"` // the member id, given by the coordinator
	ClientID   string `json:"client_id"`
	Host       string `json:"host"`
	Partitions []int  `json:"-"`
}

// Owner returns the member that owns the partition, or nil if no member does.
func (g Group) Owner(partition int) *Member {
	for i, m := range g.Members {
		if slices.Contains(m.Partitions, partition) {
			return &g.Members[i]
		}
	}
	return nil
}

// Group describes a group, and which of its members owns which partitions of the topic.
// During a rebalance no member owns a partition.
func (c *Cluster) Group(ctx context.Context, group, topic string) (Group, error) {
	var d kafka.DescribeGroupsResponseGroup
	err := askCoordinator(ctx, func() error {
		res, err := c.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		if err == nil {
			d = res.Groups[0]
			err = c.transport.judge(about{request: protocol.DescribeGroups, group: group}, d.Error)
		}
		return err
	})
	if errors.Is(err, kafka.GroupIdNotFound) {
		return Group{State: "Dead"}, nil
	}
	if err != nil {
		return Group{}, fmt.Errorf("describe group %s: %w", group, err)
	}
	g := Group{State: d.GroupState}
	for _, m := range d.Members {
		own := Member{ID: m.MemberID, ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/")} // brokers write /10.0.0.1
		for _, t := range m.MemberAssignments.Topics {
			if t.Topic == topic {
				own.Partitions = append(own.Partitions, t.Partitions...)
			}
		}
		g.Members = append(g.Members, own)
	}
	return g, nil
}
