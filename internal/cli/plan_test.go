package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestPlanDelay_MergesConsecutiveEqualBuckets(t *testing.T) {
	cfg := config.Default()
	for delay, want := range map[time.Duration][]ops.Hop{
		26 * time.Hour:   {{Bucket: "12h", Topic: "delay_12h", Times: 2}, {Bucket: "2h", Topic: "delay_2h", Times: 1}},
		17 * time.Minute: {{Bucket: "5m", Topic: "delay_5m", Times: 3}, {Bucket: "1m", Topic: "delay_1m", Times: 2}},
		time.Millisecond: {{Bucket: "10s", Topic: "delay_10s", Times: 1}},
	} {
		expect.Same(t, ops.NewDelayPlan(cfg.Buckets, cfg.Topics.Close, delay).Hops, want, "%v", delay)
	}
}

func TestPlanDelay_CountsEveryHopAndTheCloseTopic(t *testing.T) {
	cfg := config.Default()
	rapid.Check(t, func(t *rapid.T) {
		delay := time.Duration(rapid.Int64Range(1, cfg.MaxDelay.Milliseconds()).Draw(t, "ms")) * time.Millisecond
		p := ops.NewDelayPlan(cfg.Buckets, cfg.Topics.Close, delay)
		sum := 0
		for i, h := range p.Hops {
			sum += h.Times
			must.That(t, i <= 0 || p.Hops[i-1].Topic != h.Topic, "%v: %s appears twice in a row", delay, h.Topic)
		}
		walk := len(cfg.Buckets.Walk(delay))
		must.That(t, sum == walk && p.Buckets == walk && p.Appends == walk+1, "%v: %+v; the walk has %d hops", delay, p, walk)
	})
}

func TestPlan_Tables(t *testing.T) {
	cfg := config.Default()
	golden(t, "plan_delay", func(w io.Writer) {
		printDelayPlan(w, ops.NewDelayPlan(cfg.Buckets, cfg.Topics.Close, 26*time.Hour+17*time.Minute))
	})
	findings := []kafka.Finding{
		{Topic: "delay_10s", What: "does not exist", Fix: "create it", By: kafka.Change{Create: true}},
		{Topic: "delay_1m", What: "has 4 partitions, want 12", Fix: "add partitions", By: kafka.Change{Partitions: 12}},
		{Topic: "order-close", What: "has 1 replicas, want 3", Fix: "reassign its partitions with your cluster's tools"},
	}
	golden(t, "plan_topics", func(w io.Writer) { printTopicsPlan(w, ops.NewTopicsPlan(cfg, 8, findings)) })
	golden(t, "plan_nothing", func(w io.Writer) { printTopicsPlan(w, ops.NewTopicsPlan(cfg, 8, nil)) })
}

func TestPlan_WithADelayNeedsNoServer(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s, 1m, 5m, 30m, 2h, 12h]\n")
	out, stderr, code := run(t, nil, "delays", "explain", "--delay", "30d", "-o", "json", "--config", file)
	var p ops.DelayPlan
	err := json.Unmarshal([]byte(out), &p)
	must.That(t, err == nil && code == 0, "exit %d, %v, %q", code, err, stderr)
	if want := (ops.DelayPlan{Delay: "30d", Hops: []ops.Hop{{Bucket: "12h", Topic: "delay_12h", Times: 60}}, Close: "order-close", Buckets: 60,
		Appends: 61}); !cmp.Equal(p, want) {
		t.Errorf("%+v, want %+v", p, want)
	}
	for delay, want := range map[string]string{"31d": "delays.max", "soon": "soon", "": "--delay", "-5m": "--delay"} {
		if out, stderr, code := run(t, nil, "delays", "explain", "--delay="+delay, "--config", file); code != 2 || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit 2 and %q", delay, code, out, stderr, want)
		}
	}
}

func TestDelaysExplain_SaysWhichRuleDecides(t *testing.T) {
	file := topicsYAML(t, `buckets: [1m]
delays:
  categories: {virtual: 15m, physical: 1h}
  rules:
    - match: {attributes: {payment_method: bank_transfer}}
      after: never
    - match: {category: virtual}
      grace: 1m
      remind: [2m, 10m]
    - match: {attributes: {vip: "true"}}
      after: 2h
`)
	var all []string
	for _, args := range [][]string{
		{"--category", "virtual"}, {"--category", "virtual", "--attribute", "payment_method=bank_transfer"},
		{"--category", "physical", "--attribute", "vip=true"}, {"--category", "physical", "--category", "gift"}, {},
	} {
		args = append([]string{"delays", "explain", "--config", file, "--at", "2030-01-02T03:04:05Z"}, args...)
		out, stderr, code := run(t, nil, args...)
		must.That(t, code == 0, "%v: exit %d, %s", args, code, stderr)
		all = append(all, fmt.Sprintf("$ %v\n%s", args[6:], out))
		var answer ops.DelayAnswer
		if out, _, code := run(t, nil, append(args, "-o", "json")...); code != 0 || json.Unmarshal([]byte(out), &answer) != nil || answer.Due.IsZero() {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
	golden(t, "delays_explain", func(w io.Writer) {
		for _, text := range all {
			fmt.Fprintln(w, text)
		}
	})
}
