package kafka

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestCluster_HangingBrokerCostsSecondsDespiteManyConnections: the kernel of a broker whose
// process hangs keeps the connections open.
func TestCluster_HangingBrokerCostsSecondsDespiteManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{})
		c.transport.brokers.next.Store(0)
		if err := b.MoveTopicPartition("t", 0, 0); err != nil {
			t.Fatal(err)
		}
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
		if n := b.dials.Load(); n < 100 {
			t.Fatalf("%d connections", n)
		}
		b.hung.Store(b.ListenAddrs()[0])
		if err := b.MoveTopicPartition("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		hung := time.Now()
		for {
			_, err := c.Append(t.Context(), "t", 0, someRecords)
			if err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if took := time.Since(hung); took > 2*requestTimeout {
			t.Errorf("appended after %v", took)
		}
	})
}

// TestCluster_WorksAfterBootstrapBrokersAreReplaced: the brokers in Options may all have been
// replaced since the process started.
func TestCluster_WorksAfterBootstrapBrokersAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{Brokers: b.ListenAddrs()[:1]})
		if _, err := c.Append(t.Context(), "t", 0, someRecords); err != nil {
			t.Fatal(err)
		}
		b.hung.Store(b.ListenAddrs()[0])
		if err := b.MoveTopicPartition("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		var err error
		for range 3 {
			if _, err = c.Append(t.Context(), "t", 0, someRecords); err == nil {
				break
			}
		}
		if _, failed := c.Partitions(t.Context(), "t"); err != nil || failed != nil {
			t.Errorf("append: %v; partitions: %v", err, failed)
		}
	})
}
