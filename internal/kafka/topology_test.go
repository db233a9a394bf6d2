package kafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// asked records the topics that brokers are asked about.
type asked struct {
	mu    sync.Mutex
	names []string // "*" is all topics
	times int
}

// watchMetadata records the metadata requests from now on.
func watchMetadata(b *broker) *asked {
	a := &asked{}
	b.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.times++
		topics := req.(*kmsg.MetadataRequest).Topics
		if topics == nil {
			a.names = append(a.names, "*")
		}
		for _, t := range topics {
			if !slices.Contains(a.names, *t.Topic) {
				a.names = append(a.names, *t.Topic)
			}
		}
		return nil, nil, false
	})
	return a
}

func (a *asked) about() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.names))
}

func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.times
}

// someRecords are the records that tests append.
var someRecords = []wire.Message{{Key: []byte("1"), Value: []byte("{}")}}

// TestCluster_AsksOnlyAboutItsOwnTopics: a cluster may have thousands of other topics, and their metadata used to be read twice a second.
func TestCluster_AsksOnlyAboutItsOwnTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := []string{"a", "delay", "delay-x", "delay_", "zz"}
		for i := range 300 {
			foreign = append(foreign, fmt.Sprintf("some-other-teams-topic-%03d", i))
		}
		ours := []string{"delay_10s", "delay_10s-old", "delay_1m", "order-close"}
		b := newBroker(t, kfake.SeedTopics(12, slices.Concat(foreign, ours)...))
		a := watchMetadata(b)
		c := b.cluster(Options{})
		must.Do(t, c.Ping(t.Context()))
		logs := map[string]wire.LogID{}
		for range 100 {
			for _, topic := range []string{"delay_10s", "order-close"} {
				must.Get(c.Append(t.Context(), topic, 3, someRecords))(t)
				f, err := c.Read(t.Context(), wire.Position{Topic: topic, Partition: 3, Log: logs[topic]})
				must.That(t, err == nil && len(f.Records) != 0, "%v", err)
				logs[topic] = f.Log
			}
			time.Sleep(time.Second)
		}
		c.Forget()
		time.Sleep(2 * metadataTTL)
		expect.Same(t, a.about(), []string{"delay_10s", "order-close"}, "asked about")
		expect.AtMost(t, a.count(), 200, "times asked in 100 s")
		names, err := c.TopicNames(t.Context(), "delay_")
		want := []string{"delay_", "delay_10s", "delay_10s-old", "delay_1m"}
		expect.That(t, err == nil && slices.Equal(names, want), "listed %v, %v; want %v", names, err, want)
	})
}

// TestTopicNames_AsksRarely: a cluster may have thousands of topics.
func TestTopicNames_AsksRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "delay_10s", "delay_1m", "other"))
		a := watchMetadata(b)
		c := b.cluster(Options{})
		for range 120 {
			names, err := c.TopicNames(t.Context(), "delay_")
			must.That(t, err == nil && slices.Equal(names, []string{"delay_10s", "delay_1m"}), "%v %v", names, err)
			time.Sleep(10 * time.Second)
		}
		expect.Equal(t, strings.Count(strings.Join(a.about(), " "), "*"), 40, "times that all topics were read in 20 min")
	})
}

// TestCluster_NoticesLeaderMoveByFirstRefusal, and does not wait for the next refresh.
func TestCluster_NoticesLeaderMoveByFirstRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{})
		for i := range 9 {
			must.Do(t, b.MoveTopicPartition("t", 0, int32(i%3)))
			moved := time.Now()
			for {
				_, err := c.Append(t.Context(), "t", 0, someRecords)
				if _, _, failed := c.Bounds(t.Context(), "t", 0); err == nil && failed == nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			expect.AtMost(t, time.Since(moved), 2*minRefreshInterval, "the time until it noticed")
		}
	})
}

// TestCluster_CreatedTopicIsUsableAtOnce: the client library would wait for ever until the topic is among the topics that it knows.
func TestCluster_CreatedTopicIsUsableAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		c := b.cluster(Options{})
		began := time.Now()
		spec := TopicSpec{Name: "new", Partitions: 2, Replication: 1, Retention: time.Hour}
		if there, err := c.Exists(t.Context(), "new"); there || err != nil {
			t.Fatal(there, err)
		}
		if _, _, err := c.Apply(t.Context(), []TopicSpec{spec}); err != nil {
			t.Fatal(err)
		}
		spec.Partitions = 5
		if _, _, err := c.Apply(t.Context(), []TopicSpec{spec}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Append(t.Context(), "new", 4, someRecords); err != nil {
			t.Error(err)
		}
		expect.AtMost(t, time.Since(began), 2*metadataTTL, "the time")
	})
}

// TestCluster_HangingBrokerCostsSecondsDespiteManyConnections: the kernel of a broker whose process hangs keeps the connections open.
func TestCluster_HangingBrokerCostsSecondsDespiteManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{})
		c.transport.brokers.next.Store(0)
		must.Do(t, b.MoveTopicPartition("t", 0, 0))
		var many sync.WaitGroup
		b.slow.Store(int64(10 * time.Millisecond))
		for range 100 { // as at the start of a process: each partition sends requests
			many.Go(func() {
				c.TopicID(t.Context(), "t")
				c.Append(t.Context(), "t", 0, someRecords)
			})
		}
		many.Wait()
		b.slow.Store(0)
		must.That(t, b.dials.Load() >= 100, "%d connections", b.dials.Load())
		b.hung.Store(b.ListenAddrs()[0])
		must.Do(t, b.MoveTopicPartition("t", 0, 1))
		hung := time.Now()
		for {
			_, err := c.Append(t.Context(), "t", 0, someRecords)
			if err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		expect.AtMost(t, time.Since(hung), 2*requestTimeout, "the time until it appended")
	})
}

// TestCluster_WorksAfterBootstrapBrokersAreReplaced: the brokers in Options may all have been replaced since the process started.
func TestCluster_WorksAfterBootstrapBrokersAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{Brokers: b.ListenAddrs()[:1]})
		must.Get(c.Append(t.Context(), "t", 0, someRecords))(t)
		b.hung.Store(b.ListenAddrs()[0])
		must.Do(t, b.MoveTopicPartition("t", 0, 1))
		time.Sleep(time.Minute)
		var err error
		for range 3 {
			if _, err = c.Append(t.Context(), "t", 0, someRecords); err == nil {
				break
			}
		}
		_, failed := c.Partitions(t.Context(), "t")
		expect.That(t, err == nil && failed == nil, "append: %v; partitions: %v", err, failed)
	})
}

func TestCluster_AsksForACoordinatorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{})
		asked := counted(b.Cluster, kmsg.FindCoordinator)
		all := func() {
			t.Helper()
			for _, group := range []string{"a", "b"} {
				must.Do(t, c.SetPosition(t.Context(), group, "t", 0, 5))
				if offset, err := position(t.Context(), c, group); err != nil || offset != 5 {
					t.Fatal(offset, err)
				}
				if g, err := c.Group(t.Context(), group, "t"); err != nil || g.State != "Empty" {
					t.Fatal(g, err)
				}
			}
		}
		all()
		all()
		expect.Equal(t, asked.Load(), 2, "requests for the coordinators of two groups")
	})
}

func TestCluster_AsksAgainForACoordinatorThatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		must.Do(t, c.SetPosition(t.Context(), "g", "t", 0, 5))
		asked := counted(b.Cluster, kmsg.FindCoordinator)
		refused := 0
		b.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.KeepControl()
			if refused++; refused > 1 {
				return nil, nil, false
			}
			res := req.ResponseKind().(*kmsg.OffsetCommitResponse)
			topic := kmsg.OffsetCommitResponseTopic{Topic: "t"}
			topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitResponseTopicPartition{ErrorCode: kerr.NotCoordinator.Code})
			res.Topics = append(res.Topics, topic)
			return res, nil, true
		})
		if err := c.SetPosition(t.Context(), "g", "t", 0, 6); err != nil || asked.Load() != 1 || refused != 2 {
			t.Errorf("%v after %d commits; asked for the coordinator %d times, want once", err, refused, asked.Load())
		}
	})
}

// TestCluster_AsksAgainForACoordinatorThatIsGone: the process finds the new coordinator in the same request.
func TestCluster_AsksAgainForACoordinatorThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		c.transport.topology.setCoordinator("g", "gone:9092")
		expect.NoError(t, c.SetPosition(t.Context(), "g", "t", 0, 5))
	})
}
