package main

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestTracker_CountsEarlyLostAndDuplicates(t *testing.T) {
	due := time.UnixMilli(1_000)
	tr := newTracker(5)
	for i := range 5 {
		tr.publish(i, due)
		if i != 4 {
			tr.accept(i)
		}
	}
	tr.refuse() // the last
	tr.receive(0, due.Add(-1).UnixNano())
	tr.receive(1, due.UnixNano())
	tr.receive(1, due.Add(time.Second).UnixNano())
	tr.receive(2, due.Add(2*time.Second).UnixNano())
	tr.receive(-1, due.UnixNano())
	expect.That(t, !tr.complete(), "complete without the fourth message")
	o := tr.outcome()
	expect.That(t, o.early == 1 && o.lost == 1 && o.duplicates == 1 && len(o.late) == 3 && o.late[2] == 2*time.Second, "%+v", o)
	expect.Equal(t, o.longestGap(due.Add(500*time.Millisecond)), 1500*time.Millisecond, "the longest gap")
	tr.receive(3, due.UnixNano())
	if !tr.complete() || !tr.lastDue().Equal(due) {
		t.Errorf("complete %v, last due %v", tr.complete(), tr.lastDue())
	}
}

func TestTracker_TellsOverdueMessagesFromThoseAfterTheReturn(t *testing.T) {
	back := time.UnixMilli(100_000)
	tr := newTracker(6)
	for i, m := range []struct{ due, late time.Duration }{ // from the return
		{-9 * time.Second, time.Second}, // before the cut
		{-2 * time.Second, 5 * time.Second},
		{-time.Second, time.Second},
		{time.Second, 9 * time.Second}, // soon after the return: in neither
		{6 * time.Second, 3 * time.Millisecond},
		{5 * time.Second, 2 * time.Millisecond},
	} {
		tr.publish(i, back.Add(m.due))
		tr.accept(i)
		tr.receive(i, back.Add(m.due+m.late).UnixNano())
	}
	overdue, late := tr.around(back, back.Add(5*time.Second))
	expect.Equal(t, overdue, 3*time.Second, "the last overdue message came")
	expect.That(t, slices.Equal(late, []time.Duration{2 * time.Millisecond, 3 * time.Millisecond}), "lateness %v", late)
	expect.Equal(t, tr.acknowledged(), 6, "acknowledged")
}

func TestBody_HasTheNumberAlsoInsideOtherJSON(t *testing.T) {
	body := bodyOf(orderID("0123abcd", 77))
	expect.Equal(t, len(body), bodySize, "bytes")
	wrapped := append([]byte(`{"created_at":"now",`), body[1:]...)
	for _, b := range [][]byte{body, wrapped} {
		n, ok := numberIn(b, "0123abcd")
		expect.That(t, n == 77 && ok, "number %d, %v in %s", n, ok, b)
	}
	for _, b := range [][]byte{bodyOf(orderID("ffffffff", 77)), []byte(`{"order_id":"0123abcd-`), nil} {
		n, ok := numberIn(b, "0123abcd")
		expect.That(t, !ok, "number %d in %s", n, b)
	}
}

// A worker that is killed may leave a part of a receipt.
func TestReceipts_ArriveWithoutAPart(t *testing.T) {
	var pipe bytes.Buffer
	r := &receipts{run: "0123abcd", out: &pipe}
	at := time.Unix(5, 7)
	r.add(bodyOf(orderID("0123abcd", 3)), at)
	r.add([]byte("foreign"), at)
	expect.That(t, pipe.Len() <= 0, "receipts are written before flush")
	must.Do(t, r.flush())
	pipe.WriteString("a part")
	var numbers []int
	err := readReceipts(&pipe, func(number int, got int64) {
		numbers = append(numbers, number)
		expect.Equal(t, got, at.UnixNano(), "received at")
	})
	expect.That(t, err == nil && len(numbers) == 2 && numbers[0] == 3 && numbers[1] == -1, "numbers %v, %v", numbers, err)
}

func TestRegularly_PollsAtTheTimesOfATicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var polls []float64 // seconds; the second poll takes 2.5 s
		err := regularly(ctx, time.Second, func() error {
			if polls = append(polls, time.Since(begin).Seconds()); len(polls) == 2 {
				time.Sleep(2500 * time.Millisecond)
			}
			if len(polls) == 4 {
				cancel()
			}
			return ctx.Err()
		})
		expect.That(t, slices.Equal(polls, []float64{1, 2, 4.5, 5}) && err == nil, "%v %v", polls, err)
	})
}

func TestWorkload_WarmUpIsOfTheSameKindAndShort(t *testing.T) {
	for _, name := range allWorkloads {
		for _, quick := range []bool{false, true} {
			w := workloadOf(name, quick)
			all := 0
			for _, stage := range w.warmUps() {
				all += stage.messages
				if stage.atOnce || stage.longest > 10*time.Second || stage.shortest > stage.longest || stage.messages < 1 || stage.perSecond != w.perSecond {
					t.Errorf("%s, quick %v: %+v", name, quick, stage)
				}
			}
			expect.Equal(t, all, w.warmUp, "%s: messages", name)
		}
	}
}

func TestWorkload_DelaysAreTheSameInEachRun(t *testing.T) {
	w := workloadOf("w3", false)
	first, second := w.delays(), w.delays()
	seen := map[time.Duration]bool{}
	for i := range first {
		must.That(t, first[i] == second[i] && first[i] >= w.shortest && first[i] <= w.longest, "message %d waits %v and %v", i, first[i], second[i])
		seen[first[i]] = true
	}
	expect.Equal(t, len(seen), 10, "different delays")
	expect.Equal(t, workloadOf("w1", true).sameDelay(), 5*time.Second, "w1 has the delay")
}
