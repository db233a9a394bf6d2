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
