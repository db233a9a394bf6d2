package partition

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// This holds however late the record is done.
func TestCommitter_ARecordOfTheOldLogMarksNoOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []wire.Fetched{
			{Records: []wire.RawRecord{{Offset: 7}, {Offset: 8}}, Next: 9},
			{Next: 7, Lost: &wire.Range{First: 7, Last: 8, Err: errDown}, Replaced: true},
			{Records: []wire.RawRecord{{Offset: 7}, {Offset: 8}}, Next: 9},
		}
		r := testReader(t.Context(), &fakeLog{fetch: func(int64) (wire.Fetched, error) {
			f := answers[0]
			answers = answers[1:]
			return f, nil
		}})
		var committed int64
		c := newCommitter(wire.Claim{Offset: 7, Done: func(low int64, _ string) { committed = low }}, nil)
		var of [][]wire.RawRecord
		for len(answers) > 0 {
			r.start()
			f := <-r.fetched
			r.handleFetched(f)
			if f.Replaced {
				c.Restart(&f)
			}
			for _, r := range f.Records {
				c.Add(r.Offset)
			}
			of = append(of, f.Records)
		}
		c.DoneAll(of[0])
		c.CommitNow(time.Now())
		expect.That(t, committed == 7 && c.Current(of[2][0].Generation) && !c.Current(of[0][0].Generation),
			"done below %d by records of the old log, want 7", committed)
		c.DoneAll(of[2])
		c.CommitNow(time.Now())
		expect.Equal(t, committed, 9, "done below")
	})
}

func TestDeadLetters_ADeadLetterKeepsTheGenerationOfItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := newTestLoop(ctx, &fakeLog{})
		l.DeadLetterRaw(wire.RawRecord{Offset: 1, Generation: 3}, "c", "d")
		l.deadLetterCorrupt(wire.Fetched{Corrupt: &wire.Range{First: 2, Last: 4, Err: errDown}, Generation: 3})
		for _, r := range l.dead.waiting {
			expect.Equal(t, r.Generation, 3, "the generation of offset %d", r.Offset)
		}
	})
}

// Offsets that were done before the cut stay done. The others, and all behind the cut,
// are read again.
func TestCommitter_ALogThatLostItsEndLosesAndRepeatsNothing(t *testing.T) {
	log := wire.LogID{Topic: [16]byte{1}, Epoch: 3}
	for _, cut := range []int64{2, 5, 7, 8, 10} {
		claim := wire.Claim{Offset: 0, Done: func(int64, string) {}}
		c := newCommitter(claim, nil)
		done := map[int64]bool{}
		for offset := range int64(10) {
			c.Add(offset)
		}
		c.Read(wire.Fetched{Next: 10, Log: log})
		for _, offset := range []int64{0, 1, 2, 3, 4, 6, 7, 9} {
			c.Done(0, offset)
			done[offset] = true
		}
		f := wire.Fetched{Next: cut, Replaced: true, Generation: 1, Log: log}
		c.Restart(&f)
		expect.That(t, f.Next == min(cut, 5) && c.Low() == f.Next, "cut at %d: next fetch at %d, done below %d; want %d", cut, f.Next, c.Low(), min(cut, 5))
		c.Read(f)
		for offset := f.Next; offset < 12; offset++ {
			want := offset >= cut || !done[offset]
			expect.Equal(t, c.Add(offset), want, "cut at %d: offset %d is to be processed", cut, offset)
		}
	}
}

// The offsets of both logs may be the same.
func TestCommitter_ARecreatedLogHasNothingDone(t *testing.T) {
	acked, _ := wire.EncodeDone(wire.LogID{Topic: [16]byte{1}}, 10, []wire.Run{{First: 20, End: 30}})
	var committed string
	c := newCommitter(wire.Claim{Offset: 10, Acked: acked, Done: func(_ int64, acked string) { committed = acked }}, nil)
	f := wire.Fetched{Next: 0, Replaced: true, Generation: 1, Log: wire.LogID{Topic: [16]byte{2}}}
	c.Restart(&f)
	for offset := range int64(40) {
		expect.That(t, c.Add(offset), "offset %d is done", offset)
	}
	c.CommitNow(time.Now())
	expect.That(t, wire.DecodeLog(committed).Topic == f.Log.Topic && c.Low() == 0, "committed %q, done below %d", committed, c.Low())
}

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
					c.Done(0, offset)
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
			l := newTestLoop(ctx, &fakeLog{append: func(string, []wire.RawRecord) error {
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
		l := newTestLoop(t.Context(), &fakeLog{})
		for offset := range int64(10) {
			l.committer.Add(offset)
		}
		for _, offset := range []int64{0, 1, 2, 3, 6, 7} {
			l.committer.Done(0, offset)
		}
		l.end = c.end
		expect.Equal(t, l.waited(&c.lost), c.want, "%s: records that waited", what)
	}
}
