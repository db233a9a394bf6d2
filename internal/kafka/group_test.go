package kafka

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// TestConsume_RetriesLastCommit: work that is done when a claim ends is not repeated, even if the coordinator cannot be reached for a moment.
func TestConsume_RetriesLastCommit(t *testing.T) {
	broker, c := newFake(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	must.Do(t, c.Consume(ctx, "g", "t", func(ctx context.Context, claim wire.Claim) {
		cancel()
		<-ctx.Done()
		broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.NotCoordinator, Count: 3})
		claim.Done(7, "")
	}))
	expect.Equal(t, must.Get(c.Commits(t.Context(), "g", "t", 1))(t)[0].Offset, 7, "the committed offset")
}

// TestConsume_SendsAFailedCommitAgain, also if nothing more is done.
func TestConsume_SendsAFailedCommitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"))
		c := b.cluster(Options{})
		ctx, cancel := context.WithCancel(t.Context())
		must.Do(t, c.Consume(ctx, "g", "t", func(claimed context.Context, claim wire.Claim) {
			defer cancel()
			b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.NotCoordinator, Count: 3})
			claim.Done(7, "")
			time.Sleep(6 * commitEvery)
			expect.Equal(t, must.Get(c.Commits(claimed, "g", "t", 1))(t)[0].Offset, 7, "the committed offset")
		}))
	})
}

// A process is not ready before its members have joined their groups, also while no try has failed yet.
func TestNotJoined_UntilTheFirstJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"))
		c := b.cluster(Options{})
		b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.CoordinatorLoadInProgress, Count: 8})
		ctx, cancel := context.WithCancel(t.Context())
		b.ControlKey(int16(kmsg.FindCoordinator), func(kmsg.Request) (kmsg.Response, error, bool) {
			expect.Equal(t, c.NotJoined(), "group g: not joined yet", "at the first request")
			return nil, nil, false
		})
		time.AfterFunc(2*rejoinBackoff, func() {
			expect.That(t, strings.Contains(c.NotJoined(), "not joined yet: ") && strings.Contains(c.NotJoined(), "coordinator"), "after a failure: %q", c.NotJoined())
		})
		must.Do(t, c.Consume(ctx, "g", "t", func(context.Context, wire.Claim) {
			defer cancel()
			expect.Equal(t, c.NotJoined(), "", "in the group")
		}))
	})
}

// TestCommit_OfHundredsOfPartitionsFits: a broker refuses a commit whose metadata is larger than a batch of __consumer_offsets.
func TestCommit_OfHundredsOfPartitionsFits(t *testing.T) {
	const partitions = 300
	broker, c := newFake(t, partitions)
	broker.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		size := 0
		for _, p := range req.(*kmsg.OffsetCommitRequest).Topics[0].Partitions {
			size += 500 + len(*p.Metadata)
		}
		expect.AtMost(t, size, 1<<20, "the bytes of a commit, with the longest names of group and topic")
		return nil, nil, false
	})
	var offsets []kafka.OffsetCommit
	for p := range partitions {
		offsets = append(offsets, kafka.OffsetCommit{Partition: p, Offset: int64(p), Metadata: strings.Repeat("m", 4000)})
	}
	must.Do(t, c.commit(t.Context(), "t", offsets, kafka.OffsetCommitRequest{GroupID: "g", GenerationID: -1}))
	for p, commit := range must.Get(c.Commits(t.Context(), "g", "t", partitions))(t) {
		expect.Equal(t, commit.Offset, int64(p), "the commit of partition %d", p)
	}
}

// TestConsume_StopsInTimeIfCommitsGetNoAnswer: commits that wait for an answer one after the
// other used to keep a process from stopping for more than 10 s.
func TestConsume_StopsInTimeIfCommitsGetNoAnswer(t *testing.T) {
	for range 10 { // which commits follow each other is random
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, kfake.SeedTopics(1, "t"))
			c := b.cluster(Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var canceled time.Time
			must.Do(t, c.Consume(ctx, "g", "t", func(claimed context.Context, claim wire.Claim) {
				b.hung.Store(b.ListenAddrs()[0])
				claim.Done(7, "")
				time.Sleep(time.Second)
				canceled = time.Now()
				cancel()
				<-claimed.Done()
			}))
			expect.AtMost(t, time.Since(canceled), memberStopTimeout, "the time from the end of ctx to the return of Consume")
		})
	}
}

func TestConsume_APartitionWithoutACommitIsFresh(t *testing.T) {
	_, c := newFake(t, 3)
	offsets := map[string][]kafka.OffsetCommit{"t": {{Partition: 0, Offset: 0}}}
	must.Get(c.client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: "g", GenerationID: -1, Topics: offsets}))(t)
	var mu sync.Mutex
	claims := map[int]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must.Do(t, c.Consume(ctx, "g", "t", func(_ context.Context, claim wire.Claim) {
		mu.Lock()
		defer mu.Unlock()
		if claims[claim.Partition] = claim.NoCommit; len(claims) == 3 {
			cancel()
		}
	}))
	expect.That(t, !claims[0] && claims[1] && claims[2], "%v, want partitions 1 and 2 fresh", claims)
}

func TestConsume_AMemberHasTheNameOfItsProcess(t *testing.T) {
	_, c := newFake(t, 1)
	c.NameMember("relay@" + strings.Repeat("höst", 60) + ":17:9464")
	ctx, cancel := context.WithCancel(t.Context())
	must.Do(t, c.Consume(ctx, "g", "t", func(context.Context, wire.Claim) {
		defer cancel()
		g, err := c.Group(ctx, "g", "t")
		if owner := g.Owner(0); err != nil || owner == nil || !strings.HasPrefix(owner.ClientID, "relay@höst") || len(owner.ClientID) > 200 ||
			!utf8.ValidString(owner.ClientID) {
			t.Errorf("the owner is %+v, %v", owner, err)
		}
	}))
}

// TestHeartbeats: memberships of a process take turns, ask at once when one of them hears of a rebalance, and often while it lasts.
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
							expect.That(t, at.Sub(last) <= longest, "%d members: %v between two heartbeats of one", c.members, at.Sub(last))
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
				expect.That(t, beats[len(beats)-1].Equal(rebalance), "member %d of %d did not ask at once", i, c.members)
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
