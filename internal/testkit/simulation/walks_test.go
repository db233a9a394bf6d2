package simulation

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// longestWalk returns the largest number of buckets that any delay up to longest passes through if nothing is late: the length of the longest Walk.
func longestWalk(bs orderclose.Buckets, longest time.Duration) int {
	if longest <= 0 {
		return 0
	}
	last := len(bs) - 1
	b := bs[last]
	if last == 0 { // the smallest bucket takes every shorter delay
		return int((longest + b.Length - 1) / b.Length)
	}
	// Pick takes b for a delay of at least from, again and again until less than from remains. Two cases can be the longest: b is taken as often as
	// possible, and what longest leaves remains at most; or b is taken once less, and any delay below from may remain.
	from := b.Length - b.Tolerance()
	most := longestWalk(bs[:last], min(longest, from-1))
	if longest >= from {
		times := (longest-from)/b.Length + 1
		most = max(most+int(times)-1, int(times)+longestWalk(bs[:last], longest-times*b.Length))
	}
	return most
}

func TestLongestWalk_IsTheLongestWalkOfAnyDelay(t *testing.T) {
	standard := config.Default().Buckets
	got12h, got30d := longestWalk(standard, 12*time.Hour), longestWalk(standard, 30*24*time.Hour)
	expect.That(t, got12h == 22 && got30d == 81, "%d hops up to 12h and %d up to 30 days, want 22 and 81", got12h, got30d)
	// Lengths are a few nanoseconds, so that all delays can be tried.
	rapid.Check(t, func(t *rapid.T) {
		var bs orderclose.Buckets
		length := rapid.IntRange(1, 40).Draw(t, "smallest")
		for range rapid.IntRange(1, 4).Draw(t, "buckets") {
			bs = append(bs, orderclose.Bucket{Length: time.Duration(length)})
			length += rapid.IntRange(1, 4*length).Draw(t, "step")
		}
		longest := time.Duration(rapid.IntRange(0, 2000).Draw(t, "longest"))
		want := 0
		for d := range longest + 1 {
			want = max(want, len(bs.Walk(d)))
		}
		got := longestWalk(bs, longest)
		must.That(t, got == want, "%v up to %d: %d hops, trying all gives %d", bs, longest, got, want)
	})
}
