package kafka

import (
	"context"
	"sync"
	"time"
)

// heartbeats gives the memberships of this process turns: one sends a heartbeat each heartbeatEvery, so a relay of
// six buckets sends four a second, and not 24. Processes join and leave all groups of a relay
// together, so the first heartbeat that tells of a rebalance makes all other memberships ask at once. For
// rebalanceTimeout after that they take no turns. A rebalance of one group alone is noticed after
// heartbeatAtMost. The zero value is ready to use.
type heartbeats struct {
	mu        sync.Mutex
	last      time.Time     // the latest turn that was given
	unsettled time.Time     // until then every membership sends a heartbeat each heartbeatEvery
	rebalance chan struct{} // closed when a rebalance is noticed; nil: nobody waits
}

// wait waits until a membership must send its next heartbeat. soon does not wait for a turn, as after a
// heartbeat without an answer. wait returns false if ctx ends first.
func (h *heartbeats) wait(ctx context.Context, soon bool) bool {
	h.mu.Lock()
	now := time.Now()
	next := now.Add(heartbeatEvery)
	if !soon && now.After(h.unsettled) {
		if turn := h.last.Add(heartbeatEvery); turn.After(next) {
			next = turn
		}
		if latest := now.Add(heartbeatAtMost); next.After(latest) {
			next = latest
		}
		h.last = next
	}
	if h.rebalance == nil {
		h.rebalance = make(chan struct{})
	}
	rebalance := h.rebalance
	h.mu.Unlock()
	timer := time.NewTimer(next.Sub(now))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-rebalance:
	}
	return ctx.Err() == nil
}

// rebalanced makes all memberships send a heartbeat at once, if that was not done for this rebalance.
func (h *heartbeats) rebalanced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.After(h.unsettled) && h.rebalance != nil {
		close(h.rebalance)
		h.rebalance = nil
	}
	h.unsettled = now.Add(rebalanceTimeout)
}
