package partition

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// sendAll sends records until all are acked or refused, or returns false if the claim
// ends first.
func sendAll(l *Loop, topic string, records []wire.RawRecord) bool {
	left := len(records)
	var then func(send.Result)
	then = func(r send.Result) {
		for _, a := range r.Acked {
			left -= len(a.Records)
		}
		left -= len(r.Refused)
		if len(r.Left) > 0 {
			l.Go(func(context.Context) { retry.Sleep(l.Ctx, r.Pause) }, func() {
				if l.Ctx.Err() == nil {
					l.Send(topic, r.Left, then)
				}
			})
		}
	}
	l.Send(topic, records, then)
	l.play(func() bool { return left == 0 })
	return left == 0
}

func TestSend_ReturnsSoonAfterARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		log := &testkit.Log{Fail: func(string) error { return errDown }}
		begin := time.Now()
		ok := sendAll(newTestLoop(ctx, log), "target", records("a"))
		expect.That(t, !ok, "reported success after the claim has ended")
		expect.AtMost(t, time.Since(begin), time.Minute+retry.FinishTime+time.Second, "the time from the start of the claim to the return")
	})
}

func TestSend_StartsNothingAfterTheClaimHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := &testkit.Log{Fail: func(string) error { t.Error("appended"); return nil }}
	l := newTestLoop(ctx, log)
	expect.That(t, !sendAll(l, "target", records("a")), "reported success")
	l.Claim.Confirm = func(context.Context) error { t.Error("confirmed"); return nil }
	l.wake = time.Time{}
	expect.That(t, !l.StillAssigned(), "a claim that has ended is still assigned")
}

func TestSend_OnlyRefusedRecordsBecomeDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Answer: func(_ context.Context, topic string, _ int, keys []string) error {
			if topic == "target" && slices.Contains(keys, "huge") {
				return wire.ErrRefused
			}
			return nil
		}}
		l := newTestLoop(t.Context(), log)
		for offset := range int64(4) {
			l.committer.Add(offset)
		}
		ok := sendAll(l, "target", records("a", "b", "huge", "c"))
		l.play(func() bool { return l.committer.Low() == 4 })
		expect.Same(t, log.Keys("target"), []string{"a", "b", "c"}, "appended")
		expect.Same(t, log.Keys("dead"), []string{"huge"}, "dead letters")
		expect.That(t, ok, "the append failed")
	})
}

// Each rest is longer, and the topic is used again once it works.
func TestSend_ATopicThatFailsRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, tries := time.Now(), 0
		log := &testkit.Log{Fail: func(string) error {
			if time.Since(begin) < time.Hour {
				return errDown
			}
			return nil
		}}
		l, acked := newTestLoop(t.Context(), log), 0
		var then func(send.Result)
		then = func(r send.Result) {
			for _, a := range r.Acked {
				acked += len(a.Records)
			}
			if tries++; len(r.Left) > 0 {
				time.Sleep(r.Pause)
				l.Send("target", r.Left, then)
			}
		}
		l.Send("target", records("a"), then)
		l.play(func() bool {
			must.That(t, !l.appendHangs(), "the append counts as hanging")
			return acked > 0
		})
		if most := int(time.Hour/send.MaxTime) + 10; tries > most || time.Since(begin) > time.Hour+10*time.Second {
			t.Errorf("%d tries, want %d at most; acked after %v", tries, most, time.Since(begin))
		}
		expect.That(t, !l.Failing("target") && l.FailingSince().IsZero(), "the topic still counts as failing")
	})
}

func TestDeadLetters_ARefusingTopicDelaysNoAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, tries := time.Now(), 0
		log := &testkit.Log{Fail: func(topic string) error {
			if topic != "dead" {
				return nil
			}
			if tries++; time.Since(begin) < time.Hour {
				return wire.ErrRefused
			}
			return nil
		}}
		l := newTestLoop(t.Context(), log)
		l.DeadLetter(wire.Message{Key: []byte("poison")}, "bad_due", "")
		expect.That(t, sendAll(l, "target", records("well")) && time.Since(begin) <= time.Second, "append failed")
		l.play(func() bool { return l.dead.records == 0 })
		if took := time.Since(begin); took < time.Hour || took > time.Hour+10*time.Second || tries > int(time.Hour/deadLetterRetryPause)+10 {
			t.Errorf("appended after %v and %d tries", took, tries)
		}
	})
}
