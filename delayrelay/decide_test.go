package delayrelay

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"orderclose"
)

var testBuckets = orderclose.Buckets{
	{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute},
	{Topic: "delay_5m", Length: 5 * time.Minute}, {Topic: "delay_30m", Length: 30 * time.Minute},
}

func testOptions() *Options {
	return &Options{Buckets: testBuckets, CloseTopic: "order-close", MaxDelay: orderclose.DefaultMaxDelay}
}

var epoch = time.UnixMilli(1_700_000_000_000)

// TestDecide_NeverForwardsEarly: whatever the times are, only what is due goes
// to the close topic, and what is due does.
func TestDecide_NeverForwardsEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		appended := epoch
		due := appended.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(40*24*time.Hour)).Draw(t, "delay")))
		now := appended.Add(time.Duration(rapid.Int64Range(0, int64(40*24*time.Hour)).Draw(t, "waited")))
		to := testOptions().decide(due, appended, now)
		tooFar := due.Sub(appended) > orderclose.DefaultMaxDelay+maxDelaySlack
		switch {
		case tooFar != (to.cause != ""):
			t.Fatalf("due %v after it was appended: %+v", due.Sub(appended), to)
		case !tooFar && to.close != !now.Before(due):
			t.Fatalf("%v before it is due: %+v", due.Sub(now), to)
		case !tooFar && !to.close && to.topic == "order-close":
			t.Fatalf("hops to the close topic: %+v", to)
		}
	})
}

// TestReadOn_IsBeforeAnyLaterRecordLeaves: whoever picked the bucket as wire.md
// says, up to the slack, finds the record in memory when it has to leave.
func TestReadOn_IsBeforeAnyLaterRecordLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom(testBuckets[1:]).Draw(t, "bucket")
		last := epoch
		appended := last.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "after")))
		late := time.Duration(rapid.Int64Range(0, int64(slack)).Draw(t, "appended late by"))
		remaining := b.Length - b.Tolerance() + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "remaining"))
		release := b.Release(appended.Add(remaining-late), appended)
		if on := readOn(b, false, last); on.Add(lead).After(release) {
			t.Fatalf("%s is read on at +%v and a record leaves at +%v", b.Topic, on.Sub(last), release.Sub(last))
		}
	})
}

func TestDecide_AnInsaneDueIsGivenUp(t *testing.T) {
	for _, due := range []time.Time{time.UnixMilli(253402300799000), time.UnixMilli(1<<63 - 1)} {
		if to := testOptions().decide(due, epoch, epoch.Add(10*time.Second)); to.cause != "due_too_far" {
			t.Errorf("due %v: %+v", due.UnixMilli(), to)
		}
	}
	if to := testOptions().decide(time.UnixMilli(-1<<63), epoch, epoch); !to.close {
		t.Errorf("due before all time: %+v; the closer asks the database", to)
	}
}

func TestWindow_LeavesByReleaseAndThenByOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		n := rapid.IntRange(1, 50).Draw(t, "records")
		for i := range n {
			release := epoch.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "release")) * time.Second)
			w.push(waiting{message: orderclose.Message{Offset: int64(i), Key: []byte("k")}, release: release})
		}
		now := epoch.Add(3 * time.Second)
		out := w.takeReleased(now, 1<<30)
		for i, r := range out {
			if now.Before(r.release) {
				t.Fatalf("left %v early", r.release.Sub(now))
			}
			if i > 0 && (r.release.Before(out[i-1].release) || r.release.Equal(out[i-1].release) && r.message.Offset < out[i-1].message.Offset) {
				t.Fatalf("%+v left after %+v", r, out[i-1])
			}
		}
		if head, ok := w.head(); ok && !now.Before(head.release) {
			t.Fatal("the head was to leave and did not")
		}
		rest := w.takeReleased(now.Add(time.Hour), 1<<30)
		if len(out)+len(rest) != n || w.bytes != 0 {
			t.Fatalf("%d + %d of %d left, %d bytes remain", len(out), len(rest), n, w.bytes)
		}
	})
}
