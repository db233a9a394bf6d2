package delayrelay

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var testBuckets = orderclose.Buckets{
	{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute},
	{Topic: "delay_5m", Length: 5 * time.Minute}, {Topic: "delay_30m", Length: 30 * time.Minute},
}

func testOptions() *Options {
	return &Options{Buckets: testBuckets, CloseTopic: "order-close"}
}

var epoch = time.UnixMilli(1_700_000_000_000)

// For any times, a record goes to the close topic exactly if it is due.
func TestDecide_NeverForwardsEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const hours = 3700 * 24
		ms := func(least, most time.Duration, name string) time.Duration {
			return time.Duration(rapid.Int64Range(least.Milliseconds(), most.Milliseconds()).Draw(t, name)) * time.Millisecond
		}
		appended := epoch
		due := appended.Add(ms(-time.Hour, hours*time.Hour, "delay"))
		now := appended.Add(ms(0, hours*time.Hour, "waited"))
		to := testOptions().decide(due.UnixMilli(), appended.UnixMilli(), now.UnixMilli())
		tooFar := wire.BeyondLimit(due.Sub(appended)) && wire.BeyondLimit(due.Sub(now))
		switch {
		case to.close && now.Before(due):
			t.Fatalf("%v before it is due: %+v", due.Sub(now), to)
		case tooFar != (to.cause != ""):
			t.Fatalf("due %v after it was appended: %+v", due.Sub(appended), to)
		case !tooFar && to.close != !now.Before(due):
			t.Fatalf("%v before it is due: %+v", due.Sub(now), to)
		case !tooFar && !to.close && to.topic == "order-close":
			t.Fatalf("hops to the close topic: %+v", to)
		}
	})
}

// If the bucket was picked as wire.md says, up to the slack, the record is in memory before its release time.
func TestNextFetch_IsBeforeAnyLaterRecordLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom(testBuckets[1:]).Draw(t, "bucket")
		last := epoch
		appended := last.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "after")))
		late := time.Duration(rapid.Int64Range(0, int64(readSlack)).Draw(t, "appended late by"))
		remaining := b.Length - b.Tolerance() + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "remaining"))
		release := b.Release(appended.Add(remaining-late), appended)
		on := nextFetch(b, last, last.Add(time.Hour))
		must.That(t, !on.Add(readLead).After(release), "%s is fetched at +%v and a record leaves at +%v", b.Topic, on.Sub(last), release.Sub(last))
	})
}

func TestNextFetch_AFutureAppendTimeCountsAsNow(t *testing.T) {
	b := testBuckets[3]
	ahead, now := nextFetch(b, epoch.Add(time.Hour), epoch), nextFetch(b, epoch, epoch)
	expect.That(t, ahead.Equal(now), "fetches %v later", ahead.Sub(now))
}

// Whatever its append time says, the record stays for a while. Otherwise it would hop into its own bucket again and again.
func TestRelease_ARecordThatIsNotDueStays(t *testing.T) {
	now := time.Now().UnixMilli()
	b := testBuckets[0]
	for _, appended := range []int64{0, now - time.Hour.Milliseconds(), now, now + time.Hour.Milliseconds()} {
		for atOnce, least := range map[bool]time.Duration{true: b.Length, false: min(minStay, b.Tolerance()/2)} {
			stays := milliseconds(releaseTime(b, atOnce, now+10*time.Hour.Milliseconds(), appended, now) - now)
			expect.That(t, stays >= least, "appended at %d, now %d, it stays %v, want %v; read at once: %v", appended, now, stays, least, atOnce)
		}
	}
}

// The maximum at the time of the append is unknown.
func TestDecide_ADelayOverTheConfiguredMaximumIsKept(t *testing.T) {
	now := epoch.UnixMilli()
	largest := testBuckets[len(testBuckets)-1].Topic
	for _, ahead := range []time.Duration{orderclose.DefaultMaxDelay + time.Hour, 365 * 24 * time.Hour, wire.MaxDelayLimit + orderclose.MaxDelaySlack} {
		to := testOptions().decide(now+ahead.Milliseconds(), now, now)
		expect.That(t, to.topic == largest && to.cause == "", "due in %v: %+v", ahead, to)
	}
}

func TestDecide_AnImpossibleDueTimeIsADeadLetter(t *testing.T) {
	now := epoch.UnixMilli()
	for _, due := range []int64{253402300799000, math.MaxInt64} {
		expect.Equal(t, testOptions().decide(due, now, now+10_000).cause, "due_too_far", "the cause of due time %d", due)
	}
	expect.That(t, testOptions().decide(math.MinInt64, now, now).close, "the smallest due time does not go to the close topic")
	for _, appended := range []int64{-1, math.MinInt64, 1000 * now, 1_000_000 * now, math.MaxInt64} { // such as one in nanoseconds
		expect.Equal(t, testOptions().decide(now+60_000, appended, now).topic, "delay_1m", "the topic for the append time %d", appended)
	}
}

func TestWindow_OrdersByReleaseThenOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		n := rapid.IntRange(1, 50).Draw(t, "records")
		for i := range n {
			release := rapid.Int64Range(0, 5).Draw(t, "release")
			w.push(waiting{record: wire.RawRecord{Offset: int64(i), DueAt: release, Body: []byte("k")}, release: release})
		}
		const now = 3
		var out []wire.RawRecord
		for {
			step := w.takeReleased(now, rapid.IntRange(1, 300).Draw(t, "bytes"))
			if len(step) == 0 {
				break
			}
			out = append(out, step...)
		}
		left := len(out)
		for i, r := range out {
			must.That(t, r.DueAt <= now, "left %d ms early", r.DueAt-now)
			if i > 0 && (r.DueAt < out[i-1].DueAt || r.DueAt == out[i-1].DueAt && r.Offset < out[i-1].Offset) {
				t.Fatalf("%+v left after %+v", out[i-1], r)
			}
		}
		head, ok := w.head()
		must.That(t, !ok || head.release > now, "the head's release time has passed and it did not leave")
		rest := w.takeReleased(100, 1<<30)
		must.That(t, left+len(rest) == n && w.bytes == 0 && len(w.heap) == 0, "%d + %d of %d left, %d bytes remain", left, len(rest), n, w.bytes)
	})
}

func TestBodyPool_CopiesDoNotShareMemory(t *testing.T) {
	var p bodyPool
	source := []byte("body")
	first, second := p.copy(source), p.copy(source)
	clear(source)
	first = append(first, "more"...)
	expect.That(t, string(second) == "body" && string(first) == "bodymore", "%q and %q", first, second)
	big := p.copy(make([]byte, 2*bodyPoolSize))
	expect.That(t, len(big) == 2*bodyPoolSize, "%d bytes", len(big))
}

func TestReading_ReadsOnOrWaits(t *testing.T) {
	const any, atOnce = false, true
	for _, c := range []struct {
		on     time.Duration
		atOnce bool
		full   bool
		room   bool
		wait   time.Duration
	}{
		{time.Minute, any, false, false, time.Minute},
		{-1, any, false, true, 0},
		{-1, any, true, false, 0},
		{time.Hour, atOnce, false, true, 0},
		{time.Hour, atOnce, true, false, 0},
		{readPause, atOnce, false, false, readPause},
	} {
		r := reading{on: epoch.Add(c.on)}
		room, wait, then := r.next(view{bucket: orderclose.Bucket{Length: time.Hour}, atOnce: c.atOnce, now: epoch, full: c.full})
		expect.That(t, room == c.room && wait == c.wait, "%+v: %v after %v", c, room, wait)
		expect.Equal(t, then.began.Equal(epoch), room, "a read began")
	}
	room, _, _ := reading{began: epoch.Add(time.Hour), on: epoch.Add(2 * time.Hour)}.next(view{bucket: orderclose.Bucket{Length: time.Hour}, now: epoch})
	expect.That(t, room, "the clock was set back, and the partition is not read")
}
