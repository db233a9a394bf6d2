package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// member is a membership that runs in a test.
type member struct {
	cluster *Cluster
	claims  chan int                        // the partitions that it serves, in order
	served  chan int                        // those that it serves no longer
	log     atomic.Pointer[wire.ClaimedLog] // of its last claim
	ended   chan error                      // what Consume returned
	stop    func()
	dead    atomic.Bool // its process was killed: nothing that it writes arrives
}

// join begins a membership of a group, for the topic t, in a process of its own. Without a name it is not static.
func (b *broker) join(group, instance string) *member {
	m := &member{}
	m.cluster = must.Get(New(Options{Brokers: b.ListenAddrs(), Logger: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := b.dial(ctx, network, address)
			return &mortalConn{c, &m.dead}, err
		}}))(b.t)
	b.t.Cleanup(m.cluster.Close)
	m.cluster.NameInstance(instance)
	m.consume(b.t, group)
	return m
}

// also begins another membership in the process of m.
func (m *member) also(t *testing.T, group string) *member {
	other := &member{cluster: m.cluster}
	other.consume(t, group)
	return other
}

func (m *member) consume(t *testing.T, group string) {
	m.claims, m.served, m.ended = make(chan int, 100), make(chan int, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	m.stop = cancel
	go func() {
		m.ended <- m.cluster.Consume(ctx, group, "t", func(ctx context.Context, claim wire.Claim) {
			m.claims <- claim.Partition
			m.log.Store(&claim.Log)
			claim.Done(5, "")
			<-ctx.Done()
			m.served <- claim.Partition
		})
	}()
}

// end stops a membership, and fails the test if it ended with an error.
func (m *member) end(t *testing.T) {
	t.Helper()
	m.stop()
	expect.NoError(t, <-m.ended)
}

// mortalConn is a connection of a process that may be dead.
type mortalConn struct {
	net.Conn
	dead *atomic.Bool
}

// Write implements net.Conn.
func (c *mortalConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// after returns when a member serves n partitions, and how long that took.
func (m *member) after(t *testing.T, n int) time.Duration {
	t.Helper()
	began := time.Now()
	for range n {
		select {
		case <-m.claims:
		case <-time.After(time.Minute):
			t.Fatal("it serves no partition")
		}
	}
	return time.Since(began)
}

// TestConsume_AnInstanceThatIsStartedAgainGetsItsPartitionsBack at once. Without an instance the group waits for the end of the session.
func TestConsume_AnInstanceThatIsStartedAgainGetsItsPartitionsBack(t *testing.T) {
	for _, instance := range []string{"", "host-relay"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, kfake.SeedTopics(3, "t"), kfake.NumBrokers(1))
			first := b.join("g", instance)
			first.after(t, 3)
			first.dead.Store(true)
			killed := time.Now()
			second := b.join("g", instance)
			second.after(t, 3)
			took := time.Since(killed)
			if static := took < time.Second; static != (instance != "") {
				t.Errorf("with the instance %q the partitions came back after %v, with a session of %v", instance, took, DefaultSessionTimeout)
			}
			second.end(t)
			first.end(t)
		})
	}
}

// TestConsume_AnInstanceThatStopsLeaves, so that others take over at once.
func TestConsume_AnInstanceThatStopsLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(2, "t"), kfake.NumBrokers(1))
		first := b.join("g", "host-1")
		first.after(t, 2)
		second := b.join("g", "host-2")
		second.after(t, 1)
		first.after(t, 1)
		first.end(t)
		expect.AtMost(t, second.after(t, 2), time.Second, "the time until the other took over")
		expect.Equal(t, len(must.Get(second.cluster.Group(t.Context(), "g", "t"))(t).Members), 1, "members")
		second.end(t)
	})
}

// TestConsume_OfTwoWithOneInstanceTheFirstEnds, and commits nothing any more. The error names both members.
func TestConsume_OfTwoWithOneInstanceTheFirstEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		first := b.join("g", "one")
		first.after(t, 1)
		second := b.join("g", "one")
		second.after(t, 1)
		err := <-first.ended
		must.That(t, errors.Is(err, ErrFenced), "the first ended with %v", err)
		expect.Equal(t, strings.Count(err.Error(), "member one-"), 2, "members that are named by %v", err)
		time.Sleep(2 * DefaultSessionTimeout)
		g, err := second.cluster.Group(t.Context(), "g", "t")
		expect.That(t, err == nil && g.Owner(0) != nil && len(g.Members) == 1, "%+v, %v; want the second", g, err)
		select {
		case err := <-second.ended:
			t.Errorf("the second ended too: %v", err)
		default:
		}
		second.end(t)
	})
}

// TestConsume_OfTwoThatFenceEachOtherOneGoesOn: each has joined one of two groups last. The one that lost the
// first group ends, and leaves the other to it. It may also end without having left that.
func TestConsume_OfTwoThatFenceEachOtherOneGoesOn(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
			loser, winner := b.join("a", "one"), b.join("b", "one")
			loser.after(t, 1)
			winner.after(t, 1)
			lost := loser.also(t, "b")
			won := winner.also(t, "a")
			if err := <-loser.ended; !errors.Is(err, ErrFenced) {
				t.Fatalf("the loser ended with %v", err)
			}
			loser.dead.Store(!leaves)
			lost.stop() // as the program does when one part ends
			if err := <-lost.ended; err != nil {
				t.Errorf("the loser ended its other group with %v", err)
			}
			time.Sleep(2 * fencedWait)
			for _, group := range []string{"a", "b"} {
				if g, err := winner.cluster.Group(t.Context(), group, "t"); err != nil || len(g.Members) != 1 || g.Owner(0) == nil {
					t.Errorf("the loser leaves %t: group %s: %+v, %v", leaves, group, g, err)
				}
			}
			winner.end(t)
			won.end(t)
		})
	}
}

// TestConsume_AProcessIsOncePerGroupStatic: a second membership of the same process in a group is not.
func TestConsume_AProcessIsOncePerGroupStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(2, "t"), kfake.NumBrokers(1))
		m := b.join("g", "one")
		m.after(t, 2)
		again := m.also(t, "g")
		again.after(t, 1)
		g, err := m.cluster.Group(t.Context(), "g", "t")
		static := 0
		for _, in := range g.Members {
			if strings.HasPrefix(in.ID, "one-") {
				static++
			}
		}
		expect.That(t, err == nil && len(g.Members) == 2 && static == 1, "%+v, %v; want one static member of two", g, err)
		m.end(t)
		again.end(t)
	})
}

// TestConsume_ALeaderThatIsStartedAgainWatchesThePartitions, although the coordinator does not let it assign them:
// brokers do so for JoinGroup before version 9, and kfake does not.
func TestConsume_ALeaderThatIsStartedAgainWatchesThePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(2, "t"), kfake.NumBrokers(1))
		m := b.join("g", "one")
		m.after(t, 2)
		changed, revoke := context.WithCancel(t.Context())
		g := &generation{membership: &membership{cluster: m.cluster, group: "g", topic: "t", instance: "one", log: slog.New(slog.DiscardHandler)}, assigned: notKnown}
		go g.watch(t.Context(), revoke)
		time.Sleep(3 * watchPartitions)
		synctest.Wait()
		must.That(t, changed.Err() == nil && g.assigned == 2, "it joins again with %d partitions assigned, of 2", g.assigned)
		m.end(t)
		res, err := m.cluster.client.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: "t", Count: 3}}})
		must.That(t, err == nil && res.Errors["t"] == nil, "%v %v", err, res.Errors)
		<-changed.Done()
	})
}

// TestConsume_ATopicThatIsRecreatedBeginsItsClaimsAgain, also with as many partitions as before. Until then the claims go on for a while.
func TestConsume_ATopicThatIsRecreatedBeginsItsClaimsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBroker(t, kfake.SeedTopics(2, "t"), kfake.NumBrokers(1)).join("g", "")
		m.after(t, 2)
		for gone, ended := range map[time.Duration]int{topicGone - 2*watchPartitions: 0, topicGone + 2*watchPartitions: 2} {
			deleteTopic(t, m.cluster, "t")
			time.Sleep(gone)
			expect.Equal(t, len(m.served), ended, "claims that ended while the topic was gone for %v", gone)
			must.Do(t, m.cluster.createTopic(t.Context(), TopicSpec{Name: "t", Partitions: 2, Replication: 1}))
			m.after(t, 2)
			for range 2 {
				<-m.served
			}
		}
		m.end(t)
	})
}
