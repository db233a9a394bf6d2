package kafka

import (
	"context"
	"sync"
	"time"
)

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
