package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"orderclose/internal/partition"
)

const (
	// leaveAgain is how often a coordinator that is not ready is asked.
	leaveAgain = 100 * time.Millisecond
	// leavePatience is for how long: a new coordinator counts the session of a member
	// from when it has taken the group over, which may be seconds after the old one
	// has died.
	leavePatience = 30 * time.Second
)

// confirm commits what a partition stands at, which the group refuses if it is not
// this generation's any more; its contexts have ended by then. The library's
// heartbeat cannot be asked: it takes the throttle time for the error. ctx is the
// caller's, claim the claim's.
func (g *generation) confirm(ctx, claim context.Context, partition int) error {
	g.mu.Lock()
	if _, soon := g.done[partition]; !soon {
		g.done[partition] = g.last[partition]
	}
	g.mu.Unlock()
	answer := make(chan error, 1)
	select {
	case g.asked <- answer:
		return <-answer // there is a deadline to every request
	case <-claim.Done():
		return claim.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave takes a member out of its group, trying until there is a coordinator. The
// library forgets who it was when a join fails, as while the coordinator moves, and
// its own leaving fails with it: the new coordinator then gives nobody anything until
// the session of the forgotten one has run out.
func (c *Cluster) leave(ctx context.Context, group, member string) {
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	// No error means nothing: the library takes the throttle time for the error of
	// the whole. Once the member has left, it is unknown.
	for !errors.Is(c.leaveOnce(ctx, group, member), kafka.UnknownMemberId) && partition.Sleep(ctx, leaveAgain) {
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
