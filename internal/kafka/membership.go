package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// leaveRetryEvery is the pause before another attempt to leave a group.
	leaveRetryEvery = 100 * time.Millisecond
	// leaveGroupTimeout bounds all attempts to leave a group. A new coordinator starts the
	// session timeout of a member when it takes the group over, which may be seconds after
	// the old coordinator has died.
	leaveGroupTimeout = 30 * time.Second
)

// confirm checks that this generation still owns a partition. It commits the partition's
// latest offset again, and the group rejects the commit if another generation has begun.
// The contexts of the claims have ended when confirm returns that error. confirm does not
// use the library's heartbeat, which mistakes the throttle time for an error code. ctx is
// the caller's context, claimCtx that of the claim.
func (g *generation) confirm(ctx, claimCtx context.Context, partition int) error {
	g.mu.Lock()
	if _, pending := g.toSend[partition]; !pending {
		g.toSend[partition] = g.last[partition]
	}
	g.mu.Unlock()
	answer := make(chan error, 1)
	select {
	case g.commitRequests <- answer:
		return <-answer // bounded by requestTimeout
	case <-claimCtx.Done():
		return claimCtx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave removes a member from its group, and retries until there is a coordinator. When a
// join fails, as while the coordinator moves, the library forgets its member id, and its own
// leave request fails too. The new coordinator then assigns no partitions until the session
// of the forgotten member times out.
func (c *Cluster) leave(ctx context.Context, group, member string) {
	ctx, cancel := context.WithTimeout(ctx, leaveGroupTimeout)
	defer cancel()
	// A nil error proves nothing: the library mistakes the throttle time for the error code of
	// the answer. Once the member has left, the coordinator answers that it is unknown.
	for !errors.Is(c.leaveOnce(ctx, group, member), kafka.UnknownMemberId) && retry.Sleep(ctx, leaveRetryEvery) {
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
