package kafka

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestOffsetOf_IsNeverAheadOfTheBroker, and behind it by no more than the round
// trip and the millisecond that the broker's answer is cut by.
func TestOffsetOf_IsNeverAheadOfTheBroker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "offset"))
		sent := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9).Draw(t, "sent"))
		there := time.Duration(rapid.Int64Range(0, int64(probeSlow)).Draw(t, "there"))
		back := time.Duration(rapid.Int64Range(0, int64(probeSlow)-int64(there)).Draw(t, "back"))
		at := sent.Add(there + truth).Truncate(time.Millisecond)
		got := offsetOf(sent, sent.Add(there+back), at)
		switch {
		case got == 0 && truth.Abs() <= there+back+time.Millisecond:
		case got > truth:
			t.Fatalf("%v, and it is %v", got, truth)
		case got < truth-there-back-time.Millisecond:
			t.Fatalf("%v, and it is %v, with a round trip of %v", got, truth, there+back)
		}
	})
}

// TestBrokerClock_IsNotMovedWhenTheLocalClockIsSet, neither forward nor back.
func TestBrokerClock_IsNotMovedWhenTheLocalClockIsSet(t *testing.T) {
	now := reading{time.Unix(1_700_000_000, 0), time.Hour}
	c := &BrokerClock{local: func() reading { return now }}
	if !c.Now().Equal(now.wall) || c.Offset() != 0 {
		t.Errorf("before it was asked it is %v, %v ahead", c.Now(), c.Offset())
	}
	broker := now.wall.Add(-time.Minute)
	c.asked.Store(&sample{now, broker})
	for _, step := range []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour} {
		now.mono += time.Second
		now.wall = now.wall.Add(time.Second + step)
		broker = broker.Add(time.Second)
		if got := c.Now(); !got.Equal(broker) {
			t.Errorf("set by %v it says %v, want %v", step, got, broker)
		}
	}
	if c.Offset() != -time.Minute {
		t.Errorf("it was %v ahead", c.Offset())
	}
}

func TestStepped(t *testing.T) {
	from := reading{time.Unix(1_700_000_000, 0), time.Hour}
	for by, want := range map[time.Duration]bool{0: false, stepSize: false, stepSize + 1: true, -stepSize - 1: true, time.Hour: true} {
		to := reading{from.wall.Add(5*time.Second + by), from.mono + 5*time.Second}
		if wasSet(from, to) != want {
			t.Errorf("set by %v: want %v", by, want)
		}
	}
}

// TestBrokerClock_RestsAndNoticesThatTheClockWasSet within five seconds.
func TestBrokerClock_RestsAndNoticesThatTheClockWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var set atomic.Int64
		c := &BrokerClock{far: make(chan struct{}, 1), local: func() reading {
			passed := time.Since(began)
			return reading{began.Round(0).Add(passed + time.Duration(set.Load())), passed}
		}}
		for _, step := range []time.Duration{0, 5 * time.Minute} {
			from := time.Now()
			time.AfterFunc(11*time.Second, func() { set.Store(int64(step)) })
			want := probeEvery
			if step != 0 {
				want = 15 * time.Second
			}
			if ok := c.rest(t.Context(), probeEvery); !ok || time.Since(from) != want {
				t.Errorf("set by %v it rests for %v, %v; want %v", step, time.Since(from), ok, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.rest(ctx, probeEvery) {
			t.Error("it goes on after its context has ended")
		}
	})
}

// TestBrokerClock_AsksSoonWhenAnAppendTimeDoesNotFit the estimate: at once when the clock
// of the partition's leader was set, and each five seconds where brokers' clocks differ for
// good.
func TestBrokerClock_AsksSoonWhenAnAppendTimeDoesNotFit(t *testing.T) {
	const again = 2 * time.Second // from the first append to the second
	for name, tc := range map[string]struct {
		first, second time.Duration // how far the leader's clock is ahead of the estimate
		took          time.Duration // the second append
		rests         time.Duration
	}{
		"fits":                               {0, stepSize, time.Second, probeEvery},
		"fits, and is slow":                  {0, 0, 4 * time.Second, probeEvery},
		"long behind from the beginning":     {-15 * time.Second, -15 * time.Second, 0, 0},
		"long ahead from the beginning":      {15 * time.Second, 15 * time.Second, 0, stepEvery},
		"is set back":                        {0, -time.Hour, time.Second, again + time.Second},
		"is set forward":                     {0, 5 * time.Second, time.Second, again + time.Second},
		"is set back to fit the estimate":    {5 * time.Second, 0, 0, stepEvery},
		"is set forward to fit the estimate": {-stepSize, 0, 0, probeEvery},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := NewBrokerClock(nil)
			appends := func(ahead, took time.Duration) {
				sent := c.local()
				at := c.Now().Add(ahead)
				time.Sleep(took)
				c.compare(appendedTo{"order-close", 0}, sent, at)
			}
			from := time.Now()
			time.AfterFunc(0, func() { appends(tc.first, 0) })
			time.AfterFunc(again, func() { appends(tc.second, tc.took) })
			if ok := c.rest(t.Context(), probeEvery); !ok || time.Since(from) != tc.rests {
				t.Errorf("a leader's clock that %s: it rests for %v, want %v", name, time.Since(from), tc.rests)
			}
			time.Sleep(time.Minute)
		})
	}
}

// Where the leader's clock differs for good, the brokers are not asked at each append.
func TestBrokerClock_IsNotAskedAllTheTimeWhereClocksDifferForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewBrokerClock(nil)
		asked := 0
		go func() {
			for range 60 {
				for p := range 12 {
					c.compare(appendedTo{"order-close", p}, c.local(), c.Now().Add(-15*time.Second))
				}
				time.Sleep(time.Second)
			}
		}()
		for from := time.Now(); time.Since(from) < time.Minute; asked++ {
			c.rest(t.Context(), probeEvery)
		}
		if asked > 15 {
			t.Errorf("the brokers were asked %d times in a minute, want about 12", asked)
		}
	})
}
