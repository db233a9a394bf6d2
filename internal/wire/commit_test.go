package wire

import (
	"math"
	"slices"
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

// The log is beside as many runs as fit. Older metadata has no log.
func TestDone_IdentifiesItsLog(t *testing.T) {
	var many []Run
	for i := range int64(10_000) {
		many = append(many, Run{1000*i + 500, 1000*i + 900})
	}
	some := []Run{{First: 12, End: 14}}
	for _, runs := range [][]Run{nil, some, many} {
		for _, epoch := range []int32{-1, 0, 7, math.MaxInt32} {
			log := LogID{Topic: [16]byte{1, 15: 2}, Epoch: epoch}
			encoded, left := EncodeDone(log, 10, runs)
			got := DecodeLog(encoded)
			expect.That(t, got == log && len(encoded) <= 4096, "%d bytes, epoch %d: %+v, want %+v", len(encoded), epoch, got, log)
			kept := DecodeRuns(10, encoded)
			expect.That(t, len(kept)+left == len(runs) && slices.Equal(kept, runs[:len(kept)]), "%d of %d runs, %d left out", len(kept), len(runs), left)
		}
	}
	unknown, _ := EncodeDone(LogID{}, 10, some)
	for _, older := range []string{"", "r1:AQI", "somebody else's", "t1:", "t1:AQI", "t1:!", unknown} {
		expect.Equal(t, DecodeLog(older), (LogID{}), "the log of %q", older)
	}
	expect.Same(t, DecodeRuns(10, unknown), some, "runs")
}

// The number of partitions is beside the other fields, and fits beside the longest. Metadata
// of an older version has none.
func TestWithPartitions(t *testing.T) {
	var many []Run
	for i := range int64(10_000) {
		many = append(many, Run{1000*i + 500, 1000*i + 900})
	}
	log := LogID{Topic: [16]byte{1, 15: 2}, Epoch: math.MaxInt32}
	done, _ := EncodeDone(log, 10, many)
	for _, plain := range []string{"", "somebody else's", done} {
		expect.Equal(t, DecodePartitions(plain), 0, "%q partitions", plain)
		encoded := plain
		for _, n := range []int{12, 3, math.MaxInt32} {
			encoded = WithPartitions(encoded, n)
			got := DecodePartitions(encoded)
			expect.That(t, got == n && len(encoded) <= 4096, "%d partitions in %d bytes, want %d", got, len(encoded), n)
			expect.That(t, slices.Equal(DecodeRuns(10, encoded), DecodeRuns(10, plain)) && DecodeLog(encoded) == DecodeLog(plain),
				"%q changed what %q says", encoded, plain)
		}
	}
	for _, odd := range []string{"n1:", "n1:-4", "n1:x", "n1:99999999999999999999"} {
		expect.Equal(t, DecodePartitions(odd), 0, "%q partitions", odd)
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
			must.That(t, r.First > at && r.End > r.First, "%+v after %d", r, at)
			at = r.End
		}
	})
}
