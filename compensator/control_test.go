package compensator

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

var (
	delay5m, delay30m, delay2h = orderclose.Bucket{Topic: "delay_5m", Length: 5 * time.Minute}, orderclose.Bucket{Topic: "delay_30m", Length: 30 * time.Minute}, orderclose.Bucket{Topic: "delay_2h", Length: 2 * time.Hour}
	draining30m                = orderclose.Bucket{Topic: "delay_30m", Length: 30 * time.Minute, Draining: true}
)

func TestControl_ReachesEachOrderThatMayWaitInALostBucket(t *testing.T) {
	const most = 24 * time.Hour
	k := &Control{CloseTopic: "close", MaxDelay: func() time.Duration { return most }}
	for name, c := range map[string]struct {
		buckets orderclose.Buckets
		topic   string
		want    time.Duration
	}{
		"the next larger bucket":       {orderclose.Buckets{delay5m, delay30m, delay2h}, "delay_5m", 30 * time.Minute},
		"beside a draining bucket":     {orderclose.Buckets{delay5m, draining30m, delay2h}, "delay_5m", 2 * time.Hour},
		"the largest bucket":           {orderclose.Buckets{delay5m, delay30m, delay2h}, "delay_2h", most},
		"only draining ones are above": {orderclose.Buckets{delay5m, draining30m}, "delay_5m", most},
		"an unknown topic":             {orderclose.Buckets{delay5m}, "delay_7m", most},
		"the close topic":              {orderclose.Buckets{delay5m}, "close", 0},
	} {
		expect.Equal(t, k.dueWithin(notice{Lost: wire.Lost{Topic: c.topic, Last: 99}}, c.buckets), c.want, "%s", name)
	}
}

// A record stays in its bucket for the bucket's length, whichever lists follow.
func TestControl_ReachRemembersTheListsOfTheLastHours(t *testing.T) {
	k := &Control{CloseTopic: "close", MaxDelay: func() time.Duration { return 24 * time.Hour }}
	lost, now, u := notice{Lost: wire.Lost{Topic: "delay_5m", Last: 99}}, time.Now(), usedBuckets{}
	after30m := orderclose.Buckets{delay5m, delay30m, delay2h}
	u.update(k, orderclose.Buckets{delay5m, delay2h}, now)
	u.update(k, after30m, now.Add(time.Minute)) // a bucket was added
	for after, want := range map[time.Duration]time.Duration{2 * time.Minute: 2 * time.Hour, 65 * time.Minute: 2 * time.Hour, 67 * time.Minute: 30 * time.Minute} {
		expect.Equal(t, u.dueWithin(k, lost, after30m, now.Add(after)), want, "%v after the change", after)
	}
	u.update(k, after30m, now.Add(4*time.Hour))
	expect.That(t, len(u)-len(after30m) == 0, "%d buckets of former lists are remembered for ever", len(u)-len(after30m))
}
