package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"
)

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
			err = d.Error
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
