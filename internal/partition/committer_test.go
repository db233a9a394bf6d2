package partition

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// Whatever was committed when the claim changed hands, the next owner processes exactly
// the records that were not done.
func TestCommitter_ATakeOverRepeatsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var low int64
		var acked string
		claim := func() wire.Claim {
			return wire.Claim{Offset: low, Acked: acked, Done: func(offset int64, runs string) { low, acked = offset, runs }}
		}
		const records = 60
		done := map[int64]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "owners") {
			c := newCommitter(claim(), nil)
			end := rapid.Int64Range(low, records).Draw(t, "reads up to")
			for offset := low; offset < end; offset++ {
				fresh := c.Add(offset)
				must.That(t, fresh != done[offset], "offset %d: to be processed %v, was done %v", offset, fresh, done[offset])
			}
			for range rapid.IntRange(0, 30).Draw(t, "does") {
				if offset := rapid.Int64Range(0, records).Draw(t, "offset"); offset >= low && offset < end {
					c.Done(offset)
					done[offset] = true
				}
			}
			c.Commit(time.Time{}, true)
			for offset := range int64(records) {
				must.That(t, offset >= low || done[offset], "committed %d, and %d is not done", low, offset)
			}
		}
	})
}

// The first bound that is reached counts, until the dead letters are appended.
func TestDeadLetters_IsFullByRecordsAndByBytes(t *testing.T) {
	for name, value := range map[string]int{"small": 10, "large": 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			away := atomic.Bool{}
			away.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := newTestLoop(ctx, &testkit.Log{Fail: func(string) error {
				if away.Load() {
					return errDown
				}
				return nil
			}})
			added, bytes := 0, 0
			for !l.dead.full() {
				m := wire.Message{Offset: int64(added), Key: []byte("k"), Value: make([]byte, value)}
				l.committer.Add(m.Offset)
				l.DeadLetter(m, "unreadable", "garbage")
				added++
				bytes += l.dead.waiting[added-1].Size()
			}
			expect.That(t, added <= maxDeadLetters && bytes <= maxDeadLetterBytes+wire.MaxDeadValue+1000 && (added == maxDeadLetters) == (value == 10),
				"%s: full with %d dead letters of %d bytes", name, added, bytes)
			begin := time.Now()
			l.play(func() bool { return time.Since(begin) > time.Minute })
			expect.That(t, l.committer.Low() == 0 && l.dead.full(), "%s: done below %d before the dead letters were appended", name, l.committer.Low())
			away.Store(false)
			l.play(func() bool { return l.committer.Low() == int64(added) })
			expect.That(t, l.dead.records == 0 && l.dead.bytes == 0 && len(l.dead.waiting) == 0, "%s: %+v remains after all were appended", name, l.dead)
		})
	}
}

// Most records of a topic that is recreated were settled long ago.
func TestLoop_ALossCountsTheRecordsThatWaited(t *testing.T) {
	for what, c := range map[string]struct {
		lost wire.Fetched
		end  int64 // of the log when it was fetched last
		want int64
	}{
		"the log was recreated":                  {wire.Fetched{Lost: &wire.Range{First: 0, Last: 9}, Replaced: true}, 10, 4},
		"and it had records that nobody read":    {wire.Fetched{Lost: &wire.Range{First: 0, Last: 9}, Replaced: true}, 20, 14},
		"the log lost its end":                   {wire.Fetched{Lost: &wire.Range{First: 7, Last: 9}, Replaced: true}, 10, 2},
		"retention deleted unread records":       {wire.Fetched{Lost: &wire.Range{First: 10, Last: 14}}, 20, 5},
		"it is unknown whether records are lost": {wire.Fetched{Lost: &wire.Range{First: 0, Last: -1}, Replaced: true}, 0, 1},
		"retention deleted settled records":      {wire.Fetched{Lost: &wire.Range{First: 6, Last: 7}}, 20, 0},
	} {
		l := newTestLoop(t.Context(), &testkit.Log{})
		for offset := range int64(10) {
			l.committer.Add(offset)
		}
		for _, offset := range []int64{0, 1, 2, 3, 6, 7} {
			l.committer.Done(offset)
		}
		l.end = c.end
		expect.Equal(t, l.waited(&c.lost), c.want, "%s: records that waited", what)
	}
}
