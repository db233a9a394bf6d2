package cli

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

func TestPlanDelay_MergesConsecutiveEqualBuckets(t *testing.T) {
	cfg := config.Default()
	for delay, want := range map[time.Duration][]planHop{
		26 * time.Hour:   {{"12h", "delay_12h", 2}, {"2h", "delay_2h", 1}},
		17 * time.Minute: {{"5m", "delay_5m", 3}, {"1m", "delay_1m", 2}},
		time.Millisecond: {{"10s", "delay_10s", 1}},
	} {
		if diff := cmp.Diff(want, planDelayOf(cfg.Buckets, cfg.Topics.Close, delay).Hops); diff != "" {
			t.Errorf("%v (-want +got):\n%s", delay, diff)
		}
	}
}

func TestPlanDelay_CountsEveryHopAndTheCloseTopic(t *testing.T) {
	cfg := config.Default()
	rapid.Check(t, func(t *rapid.T) {
		delay := time.Duration(rapid.Int64Range(1, cfg.MaxDelay.Milliseconds()).Draw(t, "ms")) * time.Millisecond
		p := planDelayOf(cfg.Buckets, cfg.Topics.Close, delay)
		sum := 0
		for i, h := range p.Hops {
			sum += h.Times
			if i > 0 && p.Hops[i-1].Topic == h.Topic {
				t.Fatalf("%v: %s appears twice in a row", delay, h.Topic)
			}
		}
		if walk := len(cfg.Buckets.Walk(delay)); sum != walk || p.Buckets != walk || p.Appends != walk+1 {
			t.Fatalf("%v: %+v; the walk has %d hops", delay, p, walk)
		}
	})
}

func TestPlan_Tables(t *testing.T) {
	cfg := config.Default()
	golden(t, "plan_delay", func(w io.Writer) {
		printDelayPlan(w, planDelayOf(cfg.Buckets, cfg.Topics.Close, 26*time.Hour+17*time.Minute))
	})
	findings := []kafka.Finding{
		{Topic: "delay_10s", What: "does not exist", Fix: "create it", By: kafka.Change{Create: true}},
		{Topic: "delay_1m", What: "has 4 partitions, want 12", Fix: "add partitions", By: kafka.Change{Partitions: 12}},
		{Topic: "order-close", What: "has 1 replicas, want 3", Fix: "reassign its partitions with your cluster's tools"},
	}
	golden(t, "plan_topics", func(w io.Writer) { printTopicsPlan(w, planFor(cfg, 8, findings)) })
	golden(t, "plan_nothing", func(w io.Writer) { printTopicsPlan(w, planFor(cfg, 8, nil)) })
}

func TestPlan_WithADelayNeedsNoServer(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s, 1m, 5m, 30m, 2h, 12h]\n")
	out, stderr, code := run(t, nil, "topics", "plan", "--delay", "30d", "-o", "json", "--config", file)
	var p delayPlan
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 {
		t.Fatalf("exit %d, %v, %q", code, err, stderr)
	}
	if want := (delayPlan{"30d", []planHop{{"12h", "delay_12h", 60}}, "order-close", 60, 61}); !cmp.Equal(p, want) {
		t.Errorf("%+v, want %+v", p, want)
	}
	for delay, want := range map[string]string{"31d": "delays.max", "soon": "soon", "": "--delay", "-5m": "--delay"} {
		if out, stderr, code := run(t, nil, "topics", "plan", "--delay="+delay, "--config", file); code != 2 || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit 2 and %q", delay, code, out, stderr, want)
		}
	}
}

func TestPlan_AppendsAtMostAsDocumented(t *testing.T) {
	cfg := config.Default()
	if p := planFor(cfg, 0, nil); p.AppendsAtMost != 82 || cfg.MaxDelay != orderclose.DefaultMaxDelay {
		t.Errorf("%d appends up to %s, want 82", p.AppendsAtMost, p.MaxDelay)
	}
}
