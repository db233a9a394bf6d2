package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestRuns_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Int64Range(0, 1<<40).Draw(t, "low")
		var runs []Run
		at := low
		for range rapid.IntRange(0, 50).Draw(t, "runs") {
			first := at + rapid.Int64Range(1, 1000).Draw(t, "gap")
			at = first + rapid.Int64Range(1, 100_000).Draw(t, "length")
			runs = append(runs, Run{first, at})
		}
		encoded, left := EncodeRuns(low, runs)
		diff := cmp.Diff(runs, DecodeRuns(low, encoded))
		must.That(t, diff == "" && left == 0, "%d left out (-want +got):\n%s", left, diff)
	})
}

func TestRuns_FitIntoACommit(t *testing.T) {
	var runs []Run
	for i := range int64(10_000) {
		runs = append(runs, Run{1000*i + 500, 1000*i + 900})
	}
	encoded, left := EncodeRuns(0, runs)
	kept := DecodeRuns(0, encoded)
	expect.That(t, len(encoded) <= maxRunBytes && left != 0 && len(kept)+left == len(runs), "%d bytes, %d kept, %d left out", len(encoded), len(kept), left)
	expect.Same(t, kept, runs[:len(kept)], "the runs that were kept")
}

func FuzzDecodeRuns(f *testing.F) {
	f.Add("r1:AQI", int64(3))
	f.Add("somebody else's", int64(0))
	f.Fuzz(func(t *testing.T, encoded string, low int64) {
		if low < 0 || low > 1<<40 {
			return
		}
		at := low
		for _, r := range DecodeRuns(low, encoded) {
			must.That(t, r.First > at && r.End > r.First, "%+v after %d", r, at)
			at = r.End
		}
	})
}
