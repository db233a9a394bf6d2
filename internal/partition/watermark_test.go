package partition

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// The model is the plain definition: the lowest offset that was added and is not done, or
// else the next offset to read.
func TestWatermark_NeverPassesAnOpenOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := rapid.Int64Range(0, 100).Draw(t, "start")
		w := newWatermark(next)
		open := map[int64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0: // read a record, perhaps after a gap
				offset := next + rapid.Int64Range(0, 3).Draw(t, "gap")
				w.Add(offset)
				open[offset], next = true, offset+1
			case 1: // read markers only
				next += rapid.Int64Range(0, 3).Draw(t, "markers")
				w.Read(next)
			case 2: // any offset may be done, also one that was never read
				offset := rapid.Int64Range(0, next+2).Draw(t, "done")
				w.Done(offset)
				delete(open, offset)
			}
			if rapid.Bool().Draw(t, "compact") {
				w.compact()
			}
			want := next
			for offset := range open {
				want = min(want, offset)
			}
			must.That(t, w.Low() == want, "low is %d, want %d", w.Low(), want)
		}
	})
}

// An offset may stay open for hours: its row is locked, or its dead letter is not
// accepted.
func TestWatermark_AnOpenOffsetCostsNoMemoryForLaterOnes(t *testing.T) {
	w := newWatermark(0)
	w.Add(0)
	for first := int64(1); first < 1_000_000; first += 100 {
		for offset := first; offset < first+100; offset++ {
			w.Add(offset)
		}
		for offset := first; offset < first+100; offset++ {
			w.Done(offset)
		}
	}
	w.Add(1_000_001)
	expect.That(t, len(w.open) <= 2*minCompact && w.Low() == 0, "%d entries, low %d", len(w.open), w.Low())
	expect.Same(t, w.Runs(), []wire.Run{{First: 1, End: 1_000_001}}, "runs")
	expect.That(t, !w.Add(500_000), "a done offset is to be processed again")
	w.Done(0)
	expect.Equal(t, w.Low(), 1_000_001, "low")
}

func TestWatermark_ResetForgetsOpenOffsets(t *testing.T) {
	w := newWatermark(50)
	w.Add(50)
	w.Add(51)
	w.Reset(0)
	expect.That(t, w.Low() == 0 && len(w.open) == 0, "low %d, %d open; want 0 and 0", w.Low(), len(w.open))
}

func TestWatermark_ADroppedOffsetIsProcessedWhenReadAgain(t *testing.T) {
	w := newWatermark(0)
	for offset := range int64(6) {
		w.Add(offset)
	}
	w.Done(1)
	w.Done(4)
	w.Drop(2)
	w.Drop(3)
	w.Drop(4) // done, so it stays done
	var again []int64
	for offset := int64(1); offset < 8; offset++ {
		if w.Add(offset) {
			again = append(again, offset)
		}
	}
	expect.Same(t, again, []int64{2, 3, 6, 7}, "to be processed")
	w.Drop(2)
	w.Drop(3)
	w.Lose(3)
	w.Done(0)
	expect.Equal(t, w.Low(), 3, "low: a lost offset does not hold the watermark, a dropped one does")
}

// The model is two sets: offsets in process, and offsets that are done. Records are taken ahead of
// their turn, dropped, read in their turn and read again.
func TestWatermark_WhatIsTakenAheadIsProcessedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const end = 40
		w := newWatermark(0)
		processing, done := map[int64]bool{}, map[int64]bool{}
		next := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			offset := rapid.Int64Range(0, end-1).Draw(t, "offset")
			step := rapid.SampledFrom([]string{"read", "take", "done", "drop", "read again"}).Draw(t, "step")
			var fresh, asked bool
			switch step {
			case "read":
				if next == end {
					continue
				}
				offset, asked, fresh = next, true, w.Add(next)
				next++
			case "take":
				asked, fresh = true, w.Take(offset)
			case "read again":
				if offset >= next {
					continue
				}
				asked, fresh = true, w.Add(offset)
			case "done":
				if !processing[offset] {
					continue
				}
				w.Done(offset)
				delete(processing, offset)
				done[offset] = true
			case "drop":
				w.Drop(offset)
				delete(processing, offset)
			}
			want := !processing[offset] && !done[offset]
			must.That(t, !asked || fresh == want, "%s(%d) is fresh %v, want %v", step, offset, fresh, want)
			if asked {
				processing[offset] = !done[offset]
				if done[offset] {
					delete(processing, offset)
				}
			}
			if rapid.Bool().Draw(t, "compact") {
				w.compact()
			}
			low := int64(0)
			for done[low] {
				low++
			}
			must.That(t, low == w.Low(), "low is %d, want %d", w.Low(), low)
			above := map[int64]bool{}
			for _, r := range w.Runs() {
				for o := r.First; o < r.End; o++ {
					above[o] = true
				}
			}
			for o := low; o < end; o++ {
				if above[o] != done[o] {
					t.Fatalf("the runs say %v of offset %d, want %v: %v", above[o], o, done[o], w.Runs())
				}
			}
		}
	})
}

// Each second record is done when it is taken, and then the others.
func TestWatermark_RunsThatAreDoneAheadAreJoined(t *testing.T) {
	w := newWatermark(0)
	for _, first := range []int64{1, 2} {
		for o := first; o < 1000; o += 2 {
			w.Take(o)
			w.Done(o)
		}
	}
	expect.Equal(t, len(w.doneAhead), 1, "runs %v", w.doneAhead)
}
