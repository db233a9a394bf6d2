package partition

import (
	"time"

	"orderclose"
)

// tellEvery is how often a Committer tells how far a claim has come: as often as
// it is committed.
const tellEvery = 200 * time.Millisecond

// maxSleep is the longest that a loop sleeps without looking at the clock again: a
// wall clock that was set forward makes nothing later than this.
const maxSleep = 5 * time.Second

// Committer tells how far a claim is done: the low watermark, and what is done
// above it, so that whoever takes over repeats only what was in flight. It
// belongs to the claim's loop.
type Committer struct {
	*Watermark
	claim orderclose.Claim
	log   orderclose.LogID
	gen   uint32         // of the log; marks of records of another one are ignored
	left  func(runs int) // counts runs that did not fit
	low   int64          // as it was told
	done  int            // how many were done, when it was told
	told  time.Time
	held  int // losses that are not told yet
}

// NewCommitter returns a Committer of a claim that goes on where the former owner
// left it. left counts runs of done records that did not fit beside a commit and
// may be repeated; it may be nil.
func NewCommitter(claim orderclose.Claim, left func(runs int)) *Committer {
	w := NewWatermark(claim.Offset)
	w.before = DecodeRuns(claim.Offset, claim.Acked)
	if left == nil {
		left = func(int) {}
	}
	return &Committer{Watermark: w, claim: claim, log: DecodeLog(claim.Acked), left: left, low: claim.Offset}
}

// Arrived notes that records are where they go, which is to be done with them.
// Records of a log that was replaced meanwhile are ignored.
func (c *Committer) Arrived(records []orderclose.RawRecord) {
	for _, r := range records {
		c.Done(r.Generation, r.Offset)
	}
}

// Done notes that the record at an offset is done. One of a log that was replaced
// meanwhile is ignored: its offset means another record now.
func (c *Committer) Done(generation uint32, offset int64) {
	if c.Current(generation) {
		c.Watermark.Done(offset)
	}
}

// Current reports whether a record of the generation lies in the log that is read now.
func (c *Committer) Current(generation uint32) bool { return generation == c.gen }

// Read notes how far the log was read by a fetch, also where there was no record.
func (c *Committer) Read(f orderclose.Fetched) {
	c.Watermark.Read(f.Next)
	c.log = f.Log
}

// Restart begins again in a log that was replaced, as f says. It sets f.Next to the offset
// from which the log is to be read. What is under way of the old log marks nothing any
// more. Of a log that lost its end, what was done before that stays done, and the rest is
// read again.
func (c *Committer) Restart(f *orderclose.Fetched) {
	low, runs := c.Low(), c.Runs()
	same := f.Log.Topic == c.log.Topic && f.Log.Topic != (orderclose.LogID{}).Topic
	c.gen, c.log = f.Generation, f.Log
	if !same || f.Next <= low {
		c.Reset(f.Next)
		return
	}
	c.Reset(low)
	for _, r := range runs {
		if r.First < f.Next {
			c.before = append(c.before, Run{r.First, min(r.End, f.Next)})
		}
	}
	f.Next = low
}

// Tell tells how far the claim is done if there is something new, at most each
// 200 ms, or at once.
func (c *Committer) Tell(now time.Time, atOnce bool) {
	if c.held > 0 || !c.dirty() || !atOnce && now.Sub(c.told) < tellEvery {
		return
	}
	acked, left := EncodeDone(c.log, c.Low(), c.Runs())
	c.left(left)
	c.low, c.done, c.told = c.Low(), c.changes, now
	c.claim.Done(c.low, acked)
}

// Wait returns how long the claim's loop may sleep: until there is something to tell,
// and 5 s at most.
func (c *Committer) Wait(now time.Time) time.Duration {
	if c.held > 0 || !c.dirty() {
		return maxSleep
	}
	return max(tellEvery-now.Sub(c.told), 0)
}

// TellNow tells how far the claim is done whether that is new or not: a position
// that was found rather than reached.
func (c *Committer) TellNow(now time.Time) {
	c.low = -1
	c.Tell(now, true)
}

// Hold keeps every position from being told until Release was called as often.
func (c *Committer) Hold() { c.held++ }

// Release undoes one Hold. After the last one it tells the position, whether that is new
// or not.
func (c *Committer) Release(now time.Time) {
	if c.held--; c.held == 0 {
		c.TellNow(now)
	}
}

func (c *Committer) dirty() bool { return c.Low() != c.low || c.changes != c.done }
