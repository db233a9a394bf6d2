package ops

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// TestRequests counts what each question asks of one broker with three topics of 12 partitions. In each partition three records wait.
func TestRequests(t *testing.T) {
	const partitions = 12
	broker := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "delay_1h", "delay_24h", "order-close")))(t)
	defer broker.Close()
	log := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	defer log.Close()
	for _, topic := range []string{"delay_1h", "delay_24h", "order-close"} {
		for p := range partitions {
			must.Get(log.Append(t.Context(), topic, p, []wire.Message{{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")}}))(t)
		}
	}
	targets := []TopicGroup{
		{Topic: "delay_1h", Group: "relay-delay_1h", Length: time.Hour},
		{Topic: "delay_24h", Group: "relay-delay_24h", Length: 24 * time.Hour}, {Topic: "order-close", Group: "closer"},
	}
	var mu sync.Mutex
	got := map[string]int{}
	broker.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		switch kind := kmsg.Key(req.Key()); kind {
		case kmsg.ApiVersions, kmsg.Metadata: // of new connections, and every second
		default:
			got[kind.Name()]++
		}
		return nil, nil, false
	})
	now := time.Now()
	for _, c := range []struct {
		what string
		ask  func() (problems int)
		want map[string]int
	}{
		{"the first status", func() int { return ReadStatus(t.Context(), log, targets, time.Now).Problems() },
			// The bounds are two requests. In each partition: the head, and the start of the gap, which brings all.
			map[string]int{"FindCoordinator": 3, "OffsetFetch": 3, "DescribeGroups": 3, "ListOffsets": 2, "Fetch": 3 * partitions * 2}},
		{"another status", func() int { return ReadStatus(t.Context(), log, targets, time.Now).Problems() },
			map[string]int{"OffsetFetch": 3, "DescribeGroups": 3, "ListOffsets": 2, "Fetch": 3 * partitions * 2}},
		{"the window of a replay", func() int {
			expect.NoError(t, expect.Err(log.Window(t.Context(), "order-close", kafka.MomentOf(now.Add(-time.Hour)), kafka.MomentOf(now.Add(time.Hour)))))
			return 0
		}, map[string]int{"ListOffsets": 3}},
	} {
		clear(got)
		problems := c.ask()
		mu.Lock()
		diff := cmp.Diff(c.want, got)
		expect.That(t, diff == "" && problems == 0, "%s has %d problems, and asks (-want +got):\n%s", c.what, problems, diff)
		mu.Unlock()
	}
}
