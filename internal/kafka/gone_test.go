package kafka

import (
	"fmt"
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

// withClaim plays with the claim of a topic of one partition and three records.
func withClaim(t *testing.T, play func(t *testing.T, b *broker, c *Cluster, log *wire.ClaimedLog)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		m := b.join("g", "")
		m.after(t, 1)
		appendTo(t, m.cluster, 3)
		time.Sleep(2 * watchPartitions)
		play(t, b, m.cluster, m.log.Load())
		m.end(t)
	})
}

// TestClaim_AStaleAnswerDoesNotProveThatATopicIsGone: a broker that has just started may answer so for a moment.
func TestClaim_AStaleAnswerDoesNotProveThatATopicIsGone(t *testing.T) {
	withClaim(t, func(t *testing.T, b *broker, c *Cluster, log *wire.ClaimedLog) {
		expect.Equal(t, log.Gone(t.Context()), false, "gone, while brokers know the topic")
		stale := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.UnknownTopicOrPartition, Count: -1})
		time.AfterFunc(goneFor-goneFor/8, stale.Remove)
		expect.Equal(t, log.Gone(t.Context()), false, "gone, after stale answers")
		deleteTopic(t, c, "t")
		began := time.Now()
		expect.That(t, log.Gone(t.Context()) && time.Since(began) >= goneFor, "a deleted topic is not gone, or was so after %v", time.Since(began))
		must.Do(t, c.createTopic(t.Context(), TopicSpec{Name: "t", Partitions: 1, Replication: 1}))
		expect.Equal(t, log.Gone(t.Context()), true, "gone, after the topic was recreated")
	})
}

// TestClaim_KnowsTheEndOfItsLogAndOfNoOther, although nothing is read.
func TestClaim_KnowsTheEndOfItsLogAndOfNoOther(t *testing.T) {
	withClaim(t, func(t *testing.T, b *broker, c *Cluster, log *wire.ClaimedLog) {
		expect.Equal(t, log.End(), 3, "the end of the log")
		for i := range 4 {
			other := &member{cluster: c}
			other.consume(t, fmt.Sprint("g", i))
			defer other.end(t)
		}
		time.Sleep(watchPartitions) // until they have found where to begin
		asked := 0
		b.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
			b.KeepControl()
			asked++
			return nil, nil, false
		})
		time.Sleep(12 * watchPartitions)
		expect.AtMost(t, asked, 12, "requests in a minute of five memberships")
		recreate(t, c, 7)
		time.Sleep(2 * watchPartitions)
		expect.Equal(t, log.End(), 3, "the end of the log after the topic was recreated")
	})
}
