package bubble

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"orderclose/internal/app"
)

func TestBubble_ADeletedTopicMakesNobodySpin(t *testing.T) {
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		joins := r.count(kmsg.JoinGroup)
		r.start(app.Relay)
		time.Sleep(10 * time.Second)
		before := joins.Load()
		if err := r.kafka.DeleteTopics(ctx, r.cfg.Buckets[2].Topic); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if n := joins.Load() - before; n > 20 {
			t.Errorf("%d joins in 20 s after the topic was deleted", n)
		}
	})
}

func TestBubble_ATopicThatIsMadeAgainIsRead(t *testing.T) {
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(10 * time.Second)
		if err := r.kafka.DeleteTopics(ctx, r.cfg.Buckets[2].Topic); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*time.Second + 3*time.Millisecond)
		if _, _, err := r.kafka.Apply(ctx, app.TopicSpecs(r.cfg)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		r.order("after", "virtual", true)
		time.Sleep(20 * time.Minute)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 1 {
			t.Errorf("closed %v, want one by the pipeline", v.ByPath)
		}
	})
}

func TestBubble_PartitionsThatAreAddedAreRead(t *testing.T) {
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(10 * time.Second)
		more := *r.cfg // the running parts read theirs
		more.Partitions = 5
		if _, _, err := r.kafka.Apply(ctx, app.TopicSpecs(&more)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for i := range 20 {
			r.order("o"+string(rune('a'+i)), "virtual", true)
		}
		time.Sleep(20 * time.Minute)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 20 || v.Quantile(1) != 0 {
			t.Errorf("closed %v, up to %v late", v.ByPath, v.Quantile(1))
		}
	})
}

// TestBubble_ADatabaseClockBehindCostsARoundOrTwo: never early by its clock, not
// late by it, and no running in circles.
func TestBubble_ADatabaseClockBehindCostsARoundOrTwo(t *testing.T) {
	for _, behind := range []time.Duration{5 * time.Second, 15 * time.Second, 5 * time.Minute, 40 * time.Minute} {
		inBubbleBehind(t, testConfig(), behind, func(ctx context.Context, r *rig) {
			r.startAll()
			time.Sleep(10 * time.Second)
			r.order("o", "virtual", true)
			time.Sleep(50 * time.Minute)
			v := r.check(time.Now().Add(-behind))
			if v.ByPath["pipeline"] != 1 || v.Quantile(1) != 0 {
				t.Errorf("%v behind: closed %v, %v late by its clock", behind, v.ByPath, v.Quantile(1))
			}
			if n := r.appends(); n > 8 {
				t.Errorf("%v behind: %d appends", behind, n)
			}
		})
	}
}

// TestBubble_ARelaysClockDecidesNothing: the relay goes by the broker's, however
// far apart they are; with two clocks in play a record would run in circles.
func TestBubble_ARelaysClockDecidesNothing(t *testing.T) {
	for _, ahead := range []time.Duration{11 * time.Second, -11 * time.Second, time.Hour, -24 * time.Hour} {
		inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
			r.relayAhead = ahead
			r.startAll()
			time.Sleep(10 * time.Second)
			for i := range 10 {
				r.order("o"+string(rune('a'+i)), "virtual", true)
				time.Sleep(time.Second)
			}
			time.Sleep(10 * time.Minute)
			v := r.check(time.Now())
			if v.ByPath["pipeline"] != 10 || v.Quantile(1) > 10*time.Millisecond {
				t.Errorf("%v ahead: closed %v, up to %v late", ahead, v.ByPath, v.Quantile(1))
			}
		})
	}
}
