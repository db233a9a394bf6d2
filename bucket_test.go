package orderclose_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// standard has the bucket lengths of the default topics.yaml.
var standard = lengths(10*time.Second, time.Minute, 5*time.Minute, 30*time.Minute, 2*time.Hour, 12*time.Hour)

func lengths(ds ...time.Duration) (bs orderclose.Buckets) {
	for _, d := range ds {
		bs = append(bs, orderclose.Bucket{Topic: "delay_" + orderclose.ShortDuration(d), Length: d})
	}
	return bs
}

func TestTolerance_IsATenthAndAtMost30s(t *testing.T) {
	want := []time.Duration{time.Second, 6 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}
	for i, b := range standard {
		expect.Equal(t, b.Tolerance(), want[i], "%s: tolerance", b.Topic)
	}
}

func TestPick_TakesTheLargestBucketWithinItsTolerance(t *testing.T) {
	for remaining, want := range map[time.Duration]string{
		-time.Hour:                           "delay_10s",
		0:                                    "delay_10s",
		time.Millisecond:                     "delay_10s",
		54*time.Second - 1:                   "delay_10s",
		54 * time.Second:                     "delay_1m",
		time.Minute:                          "delay_1m",
		4*time.Minute + 30*time.Second - 1:   "delay_1m",
		4*time.Minute + 30*time.Second:       "delay_5m",
		30*time.Minute - 20*time.Millisecond: "delay_30m", // published shortly after it was created
		29*time.Minute + 30*time.Second - 1:  "delay_5m",
		29*time.Minute + 30*time.Second:      "delay_30m",
		2*time.Hour - 30*time.Second:         "delay_2h",
		12*time.Hour - 31*time.Second:        "delay_2h",
		12*time.Hour - 30*time.Second:        "delay_12h",
		10000 * time.Hour:                    "delay_12h",
	} {
		expect.Equal(t, standard.Pick(remaining).Topic, want, "%v remaining", remaining)
	}
}

func TestWalk_TakesOneHopForADelayThatEqualsABucket(t *testing.T) {
	for _, b := range standard {
		expect.Same(t, standard.Walk(b.Length), []orderclose.Bucket{b}, "%v", b.Length)
	}
}

func TestWalk_GoesDownTheBuckets(t *testing.T) {
	for delay, want := range map[time.Duration]string{
		17 * time.Minute:  "5m 5m 5m 1m 1m",
		0:                 "",
		-time.Minute:      "",
		time.Millisecond:  "10s",
		25 * time.Second:  "10s 10s 10s",
		45 * time.Minute:  "30m 5m 5m 5m",
		36 * time.Hour:    "12h 12h 12h",
		150 * time.Second: "1m 1m 10s 10s 10s",
	} {
		got := ""
		for i, b := range standard.Walk(delay) {
			if i > 0 {
				got += " "
			}
			got += orderclose.ShortDuration(b.Length)
		}
		expect.That(t, got == want, "%v: walks %q, want %q", delay, got, want)
	}
}

// All lengths and thresholds of the standard buckets are whole seconds. So a fraction of a second stays the same along a walk and matters only at its
// end: testing whole seconds, and whole seconds plus one fraction, covers all delays.
func TestWalk_WithTheCloseTopicTakesAtMost23AppendsFor12hAnd82For30Days(t *testing.T) {
	const days30 = 30 * 24 * 3600
	for _, fraction := range []time.Duration{0, 1} {
		appends := make([]int, days30+1)
		most12h, most30d := 0, 0
		for s := range appends {
			delay := time.Duration(s)*time.Second + fraction
			appends[s] = 1 // the append to the close topic
			if delay > 0 {
				appends[s]++
				if rest := delay - standard.Pick(delay).Length; rest > 0 {
					appends[s] = 1 + appends[rest/time.Second]
				}
			}
			if delay <= 12*time.Hour {
				most12h = max(most12h, appends[s])
			}
			if delay <= days30*time.Second {
				most30d = max(most30d, appends[s])
			}
			if s%997 == 0 && len(standard.Walk(delay))+1 != appends[s] {
				t.Fatalf("%v: Walk has %d hops, adding up gives %d", delay, len(standard.Walk(delay)), appends[s]-1)
			}
		}
		expect.That(t, most12h == 23 && most30d == 82,
			"fraction %v: at most %d appends up to 12h and %d up to 30 days, want 23 and 82", fraction, most12h, most30d)
	}
}

func TestWalk_Ends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bs := drawBuckets(t)
		delay := drawDuration(t, "delay", 0, 200*bs[len(bs)-1].Length)
		var sum time.Duration
		for i, b := range bs.Walk(delay) {
			must.That(t, i <= 0 || sum < delay, "%v over %v: hop %d comes after the end", delay, bs, i)
			sum += b.Length
		}
		must.That(t, sum >= delay, "%v over %v: the walk holds it for %v only", delay, bs, sum)
	})
}

func TestRelease_IsTheEarlierOfDueTimeAndBucketEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := lengths(drawDuration(t, "length", time.Second, 48*time.Hour))[0]
		appended := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "appended"))
		due := time.UnixMilli(rapid.Int64().Draw(t, "due")) // a header may hold any value
		got, end := b.Release(due, appended), appended.Add(b.Length)
		must.That(t, !got.After(end), "released at %v, after the bucket's end %v", got, end)
		must.That(t, !got.Before(due) || !got.Before(end), "released at %v, before due %v and the bucket's end %v", got, due, end)
		must.That(t, !got.After(due), "released at %v, after due %v", got, due)
	})
}

// A record that is moved as the relay moves it, each step a little late, never reaches the close topic early, and is no later than its last step was.
func TestPickAndRelease_AreNeverEarlyAndOnlyAsLateAsTheLastStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bs := drawBuckets(t)
		now := time.UnixMilli(1_700_000_000_000)
		due := now.Add(drawDuration(t, "delay", 0, 20*bs[len(bs)-1].Length))
		var step time.Duration
		for hops := 0; now.Before(due); hops++ {
			must.That(t, hops <= 10_000, "the walk does not end")
			b := bs.Pick(due.Sub(now))
			send := drawDuration(t, "until appended", 0, time.Second)
			wake := drawDuration(t, "until read", 0, time.Second)
			appended := now.Add(send)
			now = later(appended, b.Release(due, appended)).Add(wake)
			step = send + wake
		}
		late := now.Sub(due)
		must.That(t, late >= 0 && late <= step, "closed %v after due; the last step took %v too long", late, step)
	})
}

func TestShortDuration_OmitsTrailingZeroUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Second:       "10s",
		time.Minute:            "1m",
		90 * time.Second:       "1m30s",
		10 * time.Minute:       "10m",
		time.Hour:              "1h",
		90 * time.Minute:       "1h30m",
		time.Hour + 1e9:        "1h0m1s",
		720 * time.Hour:        "720h",
		1500 * 1e6:             "1.5s",
		100 * time.Millisecond: "100ms",
		0:                      "0s",
	} {
		got := orderclose.ShortDuration(d)
		expect.That(t, got == want, "%v: %q, want %q", d, got, want)
	}
}

func TestShortDuration_LosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64().Draw(t, "d"))
		if got, err := time.ParseDuration(orderclose.ShortDuration(d)); err != nil || got != d {
			t.Fatalf("%v is written %q and read as %v, %v", d, orderclose.ShortDuration(d), got, err)
		}
	})
}

func drawBuckets(t *rapid.T) orderclose.Buckets {
	var bs orderclose.Buckets
	length := drawDuration(t, "smallest", time.Second, time.Minute)
	for range rapid.IntRange(1, 6).Draw(t, "buckets") {
		bs = append(bs, lengths(length)...)
		length += drawDuration(t, "step", time.Millisecond, 6*length)
	}
	return bs
}

// drawDuration draws a whole number of milliseconds from low to high.
func drawDuration(t *rapid.T, label string, low, high time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(low.Milliseconds(), high.Milliseconds()).Draw(t, label)) * time.Millisecond
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
