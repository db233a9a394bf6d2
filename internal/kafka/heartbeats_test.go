package kafka

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeartbeats: memberships of a process take turns, ask at once when one of them hears of a rebalance, and often
// while it lasts.
func TestHeartbeats(t *testing.T) {
	for _, c := range []struct {
		members       int
		rate, longest time.Duration // longest is between two heartbeats of a member
	}{
		{1, heartbeatEvery, heartbeatEvery},
		{6, heartbeatEvery, heartbeatAtMost},
		{20, heartbeatAtMost / 20, heartbeatAtMost},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var h heartbeats
			var mu sync.Mutex // guards sent
			sent := make([][]time.Time, c.members)
			for i := range c.members {
				go func() {
					for h.wait(ctx, false) {
						mu.Lock()
						sent[i] = append(sent[i], time.Now())
						mu.Unlock()
					}
				}()
			}
			// between returns how many heartbeats a span had, and checks the time between them.
			between := func(from, to time.Time, longest time.Duration) (n int) {
				mu.Lock()
				defer mu.Unlock()
				for _, beats := range sent {
					last := from
					for _, at := range beats {
						if at.After(from) && !at.After(to) {
							n++
							if at.Sub(last) > longest {
								t.Errorf("%d members: %v between two heartbeats of one", c.members, at.Sub(last))
							}
							last = at
						}
					}
				}
				return n
			}
			time.Sleep(5*time.Second + time.Millisecond)
			began := time.Now()
			time.Sleep(time.Minute)
			rebalance := time.Now()
			h.rebalanced()
			synctest.Wait()
			h.rebalanced() // another group tells it, too
			synctest.Wait()
			if n := between(began, rebalance.Add(-time.Nanosecond), c.longest); n < int(time.Minute/c.rate)-c.members || n > int(time.Minute/c.rate)+c.members {
				t.Errorf("%d members sent %d heartbeats in a minute", c.members, n)
			}
			mu.Lock()
			for i, beats := range sent {
				if last := beats[len(beats)-1]; !last.Equal(rebalance) {
					t.Errorf("member %d of %d did not ask at once", i, c.members)
				}
			}
			mu.Unlock()
			time.Sleep(rebalanceTimeout)
			if n, want := between(rebalance, time.Now(), heartbeatEvery), c.members*int(rebalanceTimeout/heartbeatEvery); n < want-c.members || n > want+c.members {
				t.Errorf("%d members sent %d heartbeats during a rebalance, want %d", c.members, n, want)
			}
			time.Sleep(time.Minute)
			if n := between(rebalance.Add(2*rebalanceTimeout), time.Now(), c.longest); n > int((time.Minute-rebalanceTimeout)/c.rate)+c.members {
				t.Errorf("%d members sent %d heartbeats after the rebalance", c.members, n)
			}
			cancel()
			synctest.Wait()
		})
	}
}
