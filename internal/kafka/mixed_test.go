package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// line connects a member to the brokers until it is cut.
type line struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

func (l *line) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := l.dial(ctx, network, address)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, errors.New("the member is dead")
	}
	l.conns = append(l.conns, conn)
	return conn, err
}

// cut makes the member look dead to the brokers: it leaves no group.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, c := range l.conns {
		c.Close()
	}
}

// owned is the partitions that a member serves.
type owned struct {
	mu  sync.Mutex
	now []int
}

func (o *owned) set(partitions ...int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = partitions
}

func (o *owned) get() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.now)
}

// startNew starts a member of this version.
func startNew(t *testing.T, brokers []string, l *line, group, topic string) *owned {
	c := must.Get(New(Options{Brokers: brokers, Dial: l.Dial, SessionTimeout: shortSession}))(t)
	own, done := &owned{}, make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		c.Consume(ctx, group, topic, func(ctx context.Context, claim wire.Claim) {
			own.set(append(own.get(), claim.Partition)...)
			<-ctx.Done()
			own.set()
		})
	}()
	t.Cleanup(func() { cancel(); <-done; c.Close() })
	return own
}

// startOld starts a member as versions before this one had: the library's ConsumerGroup.
func startOld(t *testing.T, brokers []string, l *line, group, topic string) *owned {
	cg := must.Get(kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: brokers, Dialer: &kafka.Dialer{Timeout: requestTimeout, DialFunc: l.Dial}, Topics: []string{topic},
		HeartbeatInterval: heartbeatEvery, SessionTimeout: shortSession, RebalanceTimeout: rebalanceTimeout, JoinGroupBackoff: rejoinBackoff,
		GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}}, StartOffset: kafka.FirstOffset, Timeout: requestTimeout,
	}))(t)
	own, done := &owned{}, make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		defer cg.Close()
		for ctx.Err() == nil {
			gen, err := cg.Next(ctx)
			if err != nil {
				continue
			}
			var partitions []int
			for _, a := range gen.Assignments[topic] {
				partitions = append(partitions, a.ID)
			}
			own.set(partitions...)
			gen.Start(func(ctx context.Context) {
				<-ctx.Done()
				own.set()
			})
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return own
}

// shareAGroup runs a member of each version in one group, and then kills one of them.
func shareAGroup(t *testing.T, brokers []string, dial func(context.Context, string, string) (net.Conn, error), oldLeads, killLeader bool) {
	const partitions = 5
	group := fmt.Sprintf("mixed-%v-%v-%d", oldLeads, killLeader, time.Now().UnixNano())
	topic := group
	c := must.Get(New(Options{Brokers: brokers, Dial: dial}))(t)
	t.Cleanup(c.Close)
	if _, _, err := c.Apply(t.Context(), []TopicSpec{{Name: topic, Partitions: partitions, Replication: 1, Retention: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.DeleteTopics(context.Background(), topic) })
	await := func(what string, shares ...*owned) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			var all []int
			everybody := true
			for _, s := range shares {
				own := s.get()
				all, everybody = append(all, own...), everybody && len(own) > 0
			}
			slices.Sort(all)
			if everybody && slices.Equal(all, sequence(partitions)) {
				return
			}
			must.That(t, time.Since(began) <= 30*time.Second, "%s: only %v are read, all other partitions are unread", what, all)
		}
	}
	start := []func(*testing.T, []string, *line, string, string) *owned{startNew, startOld}
	if oldLeads {
		slices.Reverse(start)
	}
	lines := []*line{{dial: dial}, {dial: dial}}
	leader := start[0](t, brokers, lines[0], group, topic)
	await("one member", leader)
	follower := start[1](t, brokers, lines[1], group, topic)
	await("two members", leader, follower)
	if killLeader {
		lines[0].cut()
		await("the leader was killed", follower)
		lines[0] = &line{dial: dial}
		await("another member has joined", start[0](t, brokers, lines[0], group, topic), follower)
		return
	}
	lines[1].cut()
	await("the follower was killed", leader)
	lines[1] = &line{dial: dial}
	await("another member has joined", leader, start[1](t, brokers, lines[1], group, topic))
}

// TestConsume_OldAndNewMembersShareAGroup: during an update each version leads groups with members of the
// other one, and any of them may die. No partition stays unread.
func TestConsume_OldAndNewMembersShareAGroup(t *testing.T) {
	each := func(t *testing.T, run func(t *testing.T, oldLeads, killLeader bool)) {
		for _, oldLeads := range []bool{true, false} {
			for _, killLeader := range []bool{true, false} {
				t.Run(fmt.Sprintf("old leads %v, kill leader %v", oldLeads, killLeader), func(t *testing.T) { run(t, oldLeads, killLeader) })
			}
		}
	}
	t.Run("embedded", func(t *testing.T) {
		each(t, func(t *testing.T, oldLeads, killLeader bool) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, kfake.NumBrokers(1))
				shareAGroup(t, b.ListenAddrs(), b.dial, oldLeads, killLeader)
			})
		})
	})
	t.Run("real", func(t *testing.T) {
		brokers := os.Getenv("ORDERCLOSE_KAFKA_BROKERS")
		if brokers == "" && os.Getenv("REQUIRE_REAL") != "1" {
			t.Skip("ORDERCLOSE_KAFKA_BROKERS is not set")
		}
		each(t, func(t *testing.T, oldLeads, killLeader bool) {
			t.Parallel()
			shareAGroup(t, strings.Split(brokers, ","), (&net.Dialer{}).DialContext, oldLeads, killLeader)
		})
	})
}
