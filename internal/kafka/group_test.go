package kafka

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"orderclose"
)

// TestConsume_TheLastCommitIsTriedAgain: what a claim had done when it ended is not
// done again, although the coordinator could not be reached just then.
func TestConsume_TheLastCommitIsTriedAgain(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	c, err := New(Options{Brokers: broker.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Consume(ctx, "g", "t", func(ctx context.Context, claim orderclose.Claim) {
		cancel()
		<-ctx.Done()
		broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.NotCoordinator, Count: 3})
		claim.Done(7, "")
	}); err != nil {
		t.Fatal(err)
	}
	if commits, err := c.Commits(t.Context(), "g", "t", 1); err != nil || commits[0].Offset != 7 {
		t.Errorf("committed %+v, %v; want 7", commits, err)
	}
}

// TestDialUntil_AReadEndsSoonAfterItsContext: a join may wait for slow members for
// longer than a process that was told to stop may take.
func TestDialUntil_AReadEndsSoonAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		defer server.Close()
		c, err := New(Options{Brokers: []string{"127.0.0.1:1"}, Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		conn, err := c.dialUntil(ctx)(t.Context(), "tcp", "127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Hour)) // the library's own
		time.AfterFunc(time.Minute, cancel)
		begin := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("read something")
		}
		if took := time.Since(begin); took != time.Minute+leaveTimeout {
			t.Errorf("the read ended after %v", took)
		}
	})
}
