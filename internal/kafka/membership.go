package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

// confirm asks the group whether this generation still holds its partitions, and
// revokes them if it does not. Any other error leaves it open.
func (g *generation) confirm(ctx context.Context, revoke func()) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := g.cluster.client.Heartbeat(ctx, &kafka.HeartbeatRequest{
		GroupID: g.gen.GroupID, GenerationID: g.gen.ID, MemberID: g.gen.MemberID,
	})
	if err == nil {
		err = res.Error
	}
	if evicted(err) {
		revoke()
	}
	return err
}

// leave takes a member out of its group, trying for as long as the group would
// wait for it. The library forgets who it was when a join fails, as while the
// coordinator moves, and its own leaving fails with it: the new coordinator then
// gives nobody anything until the session of the forgotten one has run out.
func (c *Cluster) leave(ctx context.Context, group, member string) {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	for {
		err := c.leaveOnce(ctx, group, member)
		if err == nil || errors.Is(err, kafka.UnknownMemberId) {
			return
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (c *Cluster) leaveOnce(ctx context.Context, group, member string) error {
	res, err := c.client.LeaveGroup(ctx, &kafka.LeaveGroupRequest{
		GroupID: group, Members: []kafka.LeaveGroupRequestMember{{ID: member}},
	})
	if err != nil {
		return err
	}
	for _, m := range res.Members {
		if m.Error != nil {
			return m.Error
		}
	}
	return res.Error
}
