package partition

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

var errDown = errors.New("the broker is down")

// sendAll sends records until all are acked or refused, or returns false if the claim
// ends first.
func sendAll(out *Out, topic string, records []wire.RawRecord, acked func(records []wire.RawRecord)) bool {
	for {
		sent := out.SendNow(topic, records)
		for _, a := range sent.Acked {
			acked(a.Records)
		}
		if records = sent.Left; len(records) == 0 {
			return true
		}
		if !retry.Sleep(out.ctx, sent.Pause) {
			return false
		}
	}
}

func TestOut_RetriesUntilAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		log := &fakeLog{append: func(string, []wire.RawRecord) error {
			if tries++; tries < 5 {
				return errDown
			}
			return nil
		}}
		var acked []string
		ok := sendAll(newOut(t.Context(), log), "target", records("a", "b"), func(records []wire.RawRecord) {
			for _, r := range records {
				acked = append(acked, string(r.Key()))
			}
		})
		if diff := cmp.Diff([]string{"a", "b"}, acked); !ok || diff != "" {
			t.Errorf("ok %v, acked (-want +got):\n%s", ok, diff)
		}
	})
}

func TestOut_ReturnsSoonAfterARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		log := &fakeLog{append: func(string, []wire.RawRecord) error { return errDown }}
		begin := time.Now()
		ok := sendAll(newOut(ctx, log), "target", records("a"), func([]wire.RawRecord) { t.Error("acked") })
		if ok {
			t.Error("reported success after the claim has ended")
		}
		if took := time.Since(begin); took > time.Minute+retry.LingerTime+time.Second {
			t.Errorf("returned %v after the claim began", took)
		}
	})
}

func TestOut_StartsNothingAfterTheClaimHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := &fakeLog{append: func(string, []wire.RawRecord) error { t.Error("appended"); return nil }}
	out := newOut(ctx, log)
	if sendAll(out, "target", records("a"), nil) {
		t.Error("reported success")
	}
	if out.Retry("something", func(context.Context) error { t.Error("called do"); return nil }) {
		t.Error("reported success")
	}
}

// A request that is refused after the claim has ended is not halved.
func TestOut_StartsNoHalfAfterTheClaimHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	requests := 0
	log := &fakeLog{append: func(string, []wire.RawRecord) error {
		cancel()
		requests++
		return wire.ErrRefused
	}}
	if sendAll(newOut(ctx, log), "target", records("a", "b"), nil) || requests != 1 {
		t.Errorf("%d requests, want the one that was in flight", requests)
	}
}

func TestOut_OnlyRefusedRecordsBecomeDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{append: func(topic string, records []wire.RawRecord) error {
			if topic == "target" && slices.ContainsFunc(records, func(r wire.RawRecord) bool { return string(r.Key()) == "huge" }) {
				return wire.ErrRefused
			}
			return nil
		}}
		out := newOut(t.Context(), log)
		acked := 0
		ok := sendAll(out, "target", records("a", "b", "huge", "c"), func(records []wire.RawRecord) { acked += len(records) })
		if !ok || acked != 3 {
			t.Errorf("ok %v, %d acked; want true and 3", ok, acked)
		}
		out.StartDeadLetters()
		if dead := <-out.DeadLettersAcked; len(dead) != 1 || dead[0].Offset != 2 {
			t.Errorf("dead letters %v, want the record at offset 2", dead)
		}
		want := map[string][]string{"target": {"a", "b", "c"}, "dead": {"huge"}}
		if diff := cmp.Diff(want, log.appended); diff != "" {
			t.Errorf("appended (-want +got):\n%s", diff)
		}
	})
}

// The topic was recreated with fewer partitions between GroupForClaim and the append. The same
// holds for the dead-letter topic.
func TestOut_RecordsOfAMissingPartitionAreGroupedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64 // appends to several partitions run at once
		log := &fakeLog{}
		shrink := func() {
			asked.Store(0)
			log.counts = func() int {
				if asked.Add(1) == 1 {
					return 4
				}
				return 2
			}
		}
		out := newOut(t.Context(), log)
		shrink()
		var acked []string
		ok := sendAll(out, "target", records("a", "b", "c", "d", "e"), func(records []wire.RawRecord) {
			for _, r := range records {
				acked = append(acked, string(r.Key()))
			}
		})
		slices.Sort(acked)
		if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, acked); !ok || diff != "" {
			t.Errorf("ok %v, acked (-want +got):\n%s", ok, diff)
		}
		shrink()
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			out.DeadLetter(wire.Message{Key: []byte(key)}, "bad_due", "")
		}
		out.StartDeadLetters()
		if dead := <-out.DeadLettersAcked; len(dead) != 5 || len(log.appended["dead"]) != 5 {
			t.Errorf("%d dead letters as %v, want each once", len(dead), log.appended["dead"])
		}
	})
}

// A notice of a loss stands for no record of the claim.
func TestOut_ARefusedLossIsNoDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{append: func(topic string, _ []wire.RawRecord) error {
			if topic == "control" {
				return wire.ErrRefused
			}
			return nil
		}}
		var logged strings.Builder
		out := NewOut(t.Context(), OutOptions{
			Log: log, Claim: wire.Claim{Topic: "source", NoCommit: true}, Stage: "test", DeadLetterTopic: "dead", ControlTopic: "control",
			DeadLettered: func(string, string) { t.Error("a dead letter") }, Repeated: func(int) {}, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		var committed []int64
		c := NewCommitter(wire.Claim{Done: func(offset int64, _ string) { committed = append(committed, offset) }}, nil)
		out.ReportMissingCommit(c)
		c.Add(0)
		out.StartWaiting()
		out.Wait(c.DoneAll)
		if diff := cmp.Diff([]int64{0}, committed); diff != "" || c.Low() != 0 || len(log.appended) != 0 {
			t.Errorf("done below %d, appended %v, committed (-want +got):\n%s", c.Low(), log.appended, diff)
		}
		if !strings.Contains(logged.String(), "orderclose topics check") {
			t.Errorf("the log does not say what to do: %s", logged.String())
		}
	})
}

func TestDeadLetters_ARefusingTopicDelaysNoAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		log := &fakeLog{append: func(topic string, _ []wire.RawRecord) error {
			if topic == "dead" && time.Since(begin) < time.Hour {
				return wire.ErrRefused
			}
			return nil
		}}
		out := newOut(t.Context(), log)
		out.DeadLetter(wire.Message{Key: []byte("poison")}, "bad_due", "")
		out.StartDeadLetters()
		if !sendAll(out, "target", records("well"), func([]wire.RawRecord) {}) {
			t.Error("append failed")
		}
		if dead := <-out.DeadLettersAcked; len(dead) != 1 || time.Since(begin) < time.Hour {
			t.Errorf("dead letters %v after %v", dead, time.Since(begin))
		}
	})
}

func TestLinger_OutlivesItsParentByD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := retry.Linger(parent, 2*time.Second)
		defer cancel()
		end()
		time.Sleep(1999 * time.Millisecond)
		if ctx.Err() != nil {
			t.Error("ended too soon")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("did not end")
		}
	})
}

// The other partitions are of the same topic. The records of the failing one are left.
// The partitions are appended to in random order, so one round proves little.
func TestSenders_APartitionThatFailsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			begin := time.Now()
			log := &fakeLog{counts: func() int { return 3 }, append: func(_ string, records []wire.RawRecord) error {
				if string(records[0].Key()) == "b" && time.Since(begin) < time.Hour {
					return errDown
				}
				return nil
			}}
			out := newOut(t.Context(), log)
			sent := out.SendNow("target", records("a", "b", "c"))
			acked := 0
			for _, a := range sent.Acked {
				acked += len(a.Records)
			}
			if len(sent.Left) != 1 || string(sent.Left[0].Key()) != "b" || acked != 2 || time.Since(begin) > MaxSendTime {
				t.Errorf("after %v %d acked, left %v", time.Since(begin), acked, sent.Left)
			}
		}
	})
}

// Each rest is longer, and the topic is used again once it works.
func TestSenders_ATopicThatFailsRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		log := &fakeLog{append: func(string, []wire.RawRecord) error {
			if time.Since(begin) < time.Hour {
				return errDown
			}
			return nil
		}}
		out, left, acked := newOut(t.Context(), log), records("a"), 0
		tries := 0
		for acked == 0 {
			wait, ok := out.Send("target", left, func(sent SendResult) {
				left = slices.Clone(sent.Left)
				for _, a := range sent.Acked {
					acked += len(a.Records)
				}
			})
			if !ok {
				time.Sleep(wait)
				continue
			}
			if tries++; out.Hangs() {
				t.Fatal("the append counts as hanging")
			}
			out.HandleSent(<-out.Sent)
		}
		if most := int(time.Hour/(MaxSendTime+maxSendPause)) + 10; tries > most || time.Since(begin) > time.Hour+10*time.Second {
			t.Errorf("%d tries, want %d at most; acked after %v", tries, most, time.Since(begin))
		}
		if out.Failing("target") || !out.FailingSince().IsZero() {
			t.Error("the topic still counts as failing")
		}
	})
}
