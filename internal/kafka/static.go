package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/retry"
)

// ErrFenced is wrapped by the error of a membership whose instance id another process has taken.
var ErrFenced = errors.New("another process runs with the same instance")

// fencedWait is how long a process waits for the end of another one with the same instance, which needs
// a heartbeat to notice that, and then leaves its groups.
const fencedWait = 3 * time.Second

// instance is the instance id of this process, which makes its memberships static (KIP-345): the group
// keeps the partitions of a process that died for the session timeout, and returns them at once to the
// next process with the same id.
type instance struct {
	mu     sync.Mutex
	name   string          // empty: memberships are not static
	groups map[string]bool // in which a membership of this process has the name
}

// NameInstance makes the memberships static that begin from now on. No other process may have the same
// name at the same time: the groups give everything to the process that joined last, and Consume of the other
// process ends with ErrFenced.
func (c *Cluster) NameInstance(name string) {
	c.instance.mu.Lock()
	defer c.instance.mu.Unlock()
	c.instance.name, c.instance.groups = name, map[string]bool{}
}

// take returns the instance id for a membership in the group, until release is called. A second membership
// of this process in one group is not static: the two would fence each other.
func (i *instance) take(group string) (id string, release func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	groups := i.groups
	if i.name == "" || groups[group] {
		return "", func() {}
	}
	groups[group] = true
	return i.name, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(groups, group)
	}
}

// is reports whether a member id belongs to this instance. Coordinators make the id of a static member of its
// instance id, a hyphen, and a UUID.
func (m *membership) is(member string) bool {
	return m.instance != "" && strings.HasPrefix(member, m.instance+"-")
}

// first reports whether the group is the first one, by name, of those in which this process has its instance id.
func (i *instance) first(group string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for other := range i.groups {
		if other < group {
			return false
		}
	}
	return true
}

// fenced is called when the group has given this member's instance id to another process. Two processes
// that start at the same moment may each lose groups to the other. Then the one that has lost the first
// group ends, and the other one must not end too: it joins again after fencedWait, when the first one
// has left. fenced returns nil if the member must join again, and otherwise an error.
func (m *membership) fenced(ctx context.Context) error {
	if !m.waited && !m.cluster.instance.first(m.group) {
		m.waited = true
		retry.Sleep(ctx, fencedWait)
		m.id = "" // a join by the id that was replaced would be fenced again //mutant:static-joins-old
		return nil
	}
	other := "unknown"
	group, _ := m.cluster.Group(ctx, m.group, m.topic) // without an answer it is unknown
	for _, member := range group.Members {
		if m.is(member.ID) {
			other = member.ID
		}
	}
	return fmt.Errorf("group %s: %w, %s: member %s was replaced by member %s", m.group, ErrFenced, m.instance, m.id, other)
}

// heartbeat sends a heartbeat of a member. The client library decodes the answers of version 0 only,
// which has no instance id.
func (g *generation) heartbeat(ctx context.Context) error {
	coordinator, err := g.cluster.transport.coordinator(ctx, g.group)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = g.group, g.number, g.id
	if g.instance != "" {
		req.InstanceID = &g.instance
	}
	res, err := req.RequestWith(ctx, query{transport: g.cluster.transport, route: coordinator, version: 3})
	if err != nil {
		return err
	}
	return g.judge(protocol.Heartbeat, res.ErrorCode)
}

// heartbeats says when each membership of this process sends its next heartbeat. The memberships take turns: each
// heartbeatEvery, one of them sends a heartbeat. So a relay of six buckets sends four heartbeats a second, and not 24.
// A relay joins and leaves all its groups together. So when one answer reports a rebalance, all other memberships
// send a heartbeat at once, and take no turns for rebalanceTimeout. If only one group rebalances, its membership
// learns that within heartbeatAtMost. The zero value is ready to use.
type heartbeats struct {
	mu        sync.Mutex
	last      time.Time     // the latest turn that was given
	unsettled time.Time     // until then every membership sends a heartbeat each heartbeatEvery
	rebalance chan struct{} // closed when an answer reports a rebalance; nil: no membership waits
}

// wait waits until a membership must send its next heartbeat. If soon is set, as after a heartbeat that failed,
// the membership waits for no turn. wait returns false if ctx ends first.
func (h *heartbeats) wait(ctx context.Context, soon bool) bool {
	h.mu.Lock()
	now := time.Now()
	pause := heartbeatEvery
	if !soon && now.After(h.unsettled) {
		turn := h.last.Add(heartbeatEvery).Sub(now)
		pause = min(max(turn, heartbeatEvery), heartbeatAtMost)
		h.last = now.Add(pause)
	}
	if h.rebalance == nil {
		h.rebalance = make(chan struct{})
	}
	rebalance := h.rebalance
	h.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-rebalance:
	}
	return ctx.Err() == nil
}

// rebalanced makes all memberships send a heartbeat at once. A second call for the same rebalance only extends the time
// without turns.
func (h *heartbeats) rebalanced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.After(h.unsettled) && h.rebalance != nil {
		close(h.rebalance) //mutant:rebalance-in-turn
		h.rebalance = nil
	}
	h.unsettled = now.Add(rebalanceTimeout)
}
