package kafka

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// TestConsume_RetriesLastCommit: work that is done when a claim ends is not repeated, even if
// the coordinator cannot be reached for a moment.
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

// TestConsume_FirstStartIsFreshForEveryPartition, also if the first partition commits before
// the others have begun: it used to make them look as if they had been added.
func TestConsume_FirstStartIsFreshForEveryPartition(t *testing.T) {
	const partitions = 4
	broker, c := newFake(t, partitions)
	committed := make(chan struct{})
	var fetches atomic.Int32
	broker.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if fetches.Add(1) > 1 { // that of the first partition
			broker.SleepControl(func() { <-committed })
		}
		return nil, nil, false
	})
	broker.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		time.AfterFunc(100*time.Millisecond, func() { close(committed) })
		return nil, nil, false
	})
	var mu sync.Mutex
	claims := map[int]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must.Do(t, c.Consume(ctx, "g", "t", func(ctx context.Context, claim wire.Claim) {
		mu.Lock()
		claims[claim.Partition] = claim.NoCommit
		if len(claims) == partitions {
			cancel()
		}
		mu.Unlock()
		claim.Done(0, "")
		<-ctx.Done()
	}))
	for p := range partitions {
		expect.That(t, claims[p], "partition %d is not fresh: %v", p, claims)
	}
}

// TestConsume_FirstStartIsFreshForEveryMember, also if another member of the group has
// committed first.
func TestConsume_FirstStartIsFreshForEveryMember(t *testing.T) {
	_, c := newFake(t, 3)
	offsets := map[string][]kafka.OffsetCommit{"t": {{Partition: 0, Offset: 0, Metadata: wire.WithPartitions("", 3)}}}
	must.Get(c.client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: "g", GenerationID: -1, Topics: offsets}))(t)
	claims := consumeOnce(t, c, 3, "")
	expect.That(t, !claims[0] && claims[1] && claims[2], "%v, want partitions 1 and 2 fresh", claims)
	commits, err := c.commits(t.Context(), "g", "t", 3)
	expect.That(t, err == nil && commits[0].Offset == 0 && wire.DecodePartitions(commits[0].Metadata) == 3,
		"%+v, %v; want a commit that names 3 partitions", commits, err)
}

// consumeOnce consumes the topic t until all its partitions are claimed. It commits the start
// of those in done, with the metadata acked, and returns which were fresh.
func consumeOnce(t *testing.T, c *Cluster, partitions int, acked string, done ...int) map[int]bool {
	t.Helper()
	var mu sync.Mutex
	claims := map[int]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must.Do(t, c.Consume(ctx, "g", "t", func(ctx context.Context, claim wire.Claim) {
		mu.Lock()
		claims[claim.Partition] = claim.NoCommit
		if len(claims) == partitions {
			cancel()
		}
		mu.Unlock()
		<-ctx.Done()
		if slices.Contains(done, claim.Partition) {
			claim.Done(0, acked)
		}
	}))
	return claims
}

// TestConsume_AddedPartitionIsNotFresh, and its position is committed. The partitions of a
// topic that is new, or was deleted and recreated, are fresh.
func TestConsume_AddedPartitionIsNotFresh(t *testing.T) {
	_, c := newFake(t, 2)
	if got := consumeOnce(t, c, 2, "", 0, 1); !got[0] || !got[1] {
		t.Errorf("at the first start: %v, want both", got)
	}
	res, err := c.client.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: "t", Count: 4}}})
	must.That(t, err == nil && res.Errors["t"] == nil, "%v %v", err, res.Errors)
	if got := consumeOnce(t, c, 4, ""); got[0] || got[1] || got[2] || got[3] {
		t.Errorf("partitions were added: %v, want none", got)
	}
	commits, err := c.Commits(t.Context(), "g", "t", 4)
	expect.That(t, err == nil && commits[3].Offset == 0, "%v, %v; want a commit of the added partition too", commits, err)
	// A slow member of the old topic commits after the topic was recreated with more
	// partitions.
	old, err := c.TopicID(t.Context(), "t")
	must.Do(t, err)
	acked, _ := wire.EncodeDone(wire.LogID{Topic: old}, 0, nil)
	consumeOnce(t, c, 4, acked, 0, 1, 2, 3)
	must.Do(t, c.DeleteTopics(t.Context(), "t"))
	must.Do(t, c.createTopic(t.Context(), TopicSpec{Name: "t", Partitions: 5, Replication: 1}))
	offsets := map[string][]kafka.OffsetCommit{"t": {{Partition: 0, Offset: 7, Metadata: acked}}}
	must.Get(c.client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: "g", GenerationID: -1, Topics: offsets}))(t)
	expect.That(t, consumeOnce(t, c, 5, "")[4], "the topic was recreated, and partition 4 is not fresh")
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
