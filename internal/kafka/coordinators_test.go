package kafka

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestCluster_AsksForACoordinatorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{})
		asked := counted(b.Cluster, kmsg.FindCoordinator)
		all := func() {
			t.Helper()
			for _, group := range []string{"a", "b"} {
				if err := c.SetPosition(t.Context(), group, "t", 0, 5); err != nil {
					t.Fatal(err)
				}
				if offset, err := c.Position(t.Context(), group, "t", 0); err != nil || offset != 5 {
					t.Fatal(offset, err)
				}
				if g, err := c.Group(t.Context(), group, "t"); err != nil || g.State != "Empty" {
					t.Fatal(g, err)
				}
			}
		}
		all()
		all()
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times for the coordinators of two groups", n)
		}
	})
}

func TestCluster_AsksAgainForACoordinatorThatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		if err := c.SetPosition(t.Context(), "g", "t", 0, 5); err != nil {
			t.Fatal(err)
		}
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

// TestCluster_AsksAgainForACoordinatorThatIsGone: the process finds the new coordinator in the same
// request.
func TestCluster_AsksAgainForACoordinatorThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		c.transport.topology.setCoordinator("g", "gone:9092")
		if err := c.SetPosition(t.Context(), "g", "t", 0, 5); err != nil {
			t.Error(err)
		}
	})
}
