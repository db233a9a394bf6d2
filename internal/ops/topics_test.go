package ops

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/wire"
)

// TestTopicSpecs_TopicsSearchedByTimeAreStampedByTheBrokers: all topics but the dead letters,
// which are always read from the start.
func TestTopicSpecs_TopicsSearchedByTimeAreStampedByTheBrokers(t *testing.T) {
	c := config.Default()
	for _, s := range TopicSpecs(c) {
		if s.BrokerTime != (s.Name != c.Topics.DeadLetter) {
			t.Errorf("%s: stamped by the brokers: %v", s.Name, s.BrokerTime)
		}
	}
}

// A shadow run beside closers closes nothing that they do not: late orders are theirs.
func TestWaitingTopics_AShadowRunStandsForClosersThatDoNotRun(t *testing.T) {
	_, k := fakeKafka(t, kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	cfg, err := config.Parse("topics.yaml", []byte("buckets: [1m]\npartitions: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Apply(t.Context(), TopicSpecs(cfg)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var members sync.WaitGroup
	defer members.Wait()
	defer cancel()
	serves := func(group string) {
		members.Go(func() {
			_ = k.Consume(ctx, group, cfg.Topics.Close, func(ctx context.Context, _ wire.Claim) { <-ctx.Done() })
		})
		for {
			g, err := k.Group(ctx, group, cfg.Topics.Close)
			switch {
			case err == nil && len(g.Members) > 0:
				return
			case ctx.Err() != nil:
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, group := range []string{cfg.ShadowGroup(), cfg.CloserGroup()} {
		serves(group)
		all := WaitingTopics(ctx, k, cfg)
		i := slices.IndexFunc(all, func(g TopicGroup) bool { return g.Topic == cfg.Topics.Close })
		if got := all[i]; got.Group != group || got.Shadow != (group == cfg.ShadowGroup()) {
			t.Errorf("with members of %s: %+v", group, got)
		}
	}
}
