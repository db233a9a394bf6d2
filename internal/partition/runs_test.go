package partition

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"orderclose"
)

func TestRuns_DecodeToWhatWasEncoded(t *testing.T) {
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
		if diff := cmp.Diff(runs, DecodeRuns(low, encoded)); diff != "" || left != 0 {
			t.Fatalf("%d left out (-want +got):\n%s", left, diff)
		}
	})
}

func TestRuns_FitBesideACommit(t *testing.T) {
	var runs []Run
	for i := range int64(10_000) {
		runs = append(runs, Run{1000*i + 500, 1000*i + 900})
	}
	encoded, left := EncodeRuns(0, runs)
	kept := DecodeRuns(0, encoded)
	if len(encoded) > maxRuns || left == 0 || len(kept)+left != len(runs) {
		t.Errorf("%d bytes, %d kept, %d left out", len(encoded), len(kept), left)
	}
	if diff := cmp.Diff(runs[:len(kept)], kept); diff != "" {
		t.Error(diff)
	}
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
			if r.First <= at || r.End <= r.First {
				t.Fatalf("%+v after %d", r, at)
			}
			at = r.End
		}
	})
}

// TestCommitter_ATakeOverRepeatsNothingThatWasDone: whatever was told when the
// claim changed hands, the next owner is given exactly what was not done.
func TestCommitter_ATakeOverRepeatsNothingThatWasDone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var low int64
		var acked string
		claim := func() orderclose.Claim {
			return orderclose.Claim{Offset: low, Acked: acked, Done: func(offset int64, runs string) { low, acked = offset, runs }}
		}
		const records = 60
		done := map[int64]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "owners") {
			c := NewCommitter(claim(), nil)
			end := rapid.Int64Range(low, records).Draw(t, "reads up to")
			for offset := low; offset < end; offset++ {
				if fresh := c.Add(offset); fresh == done[offset] {
					t.Fatalf("offset %d: to be done %v, was done %v", offset, fresh, done[offset])
				}
			}
			for range rapid.IntRange(0, 30).Draw(t, "does") {
				if offset := rapid.Int64Range(0, records).Draw(t, "offset"); offset >= low && offset < end {
					c.Done(offset)
					done[offset] = true
				}
			}
			c.Tell(time.Time{}, true)
			for offset := range int64(records) {
				if offset < low && !done[offset] {
					t.Fatalf("told %d, and %d is not done", low, offset)
				}
			}
		}
	})
}
