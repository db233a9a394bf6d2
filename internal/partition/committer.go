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
	left  func(runs int) // counts runs that did not fit
	low   int64          // as it was told
	done  int            // how many were done, when it was told
	told  time.Time
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
	return &Committer{Watermark: w, claim: claim, left: left, low: claim.Offset}
}

// Arrived notes that records are where they go, which is to be done with them.
func (c *Committer) Arrived(records []orderclose.RawRecord) {
	for _, r := range records {
		c.Done(r.Offset)
	}
}

// Tell tells how far the claim is done if there is something new, at most each
// 200 ms, or at once.
func (c *Committer) Tell(now time.Time, atOnce bool) {
	if !c.dirty() || !atOnce && now.Sub(c.told) < tellEvery {
		return
	}
	acked, left := EncodeRuns(c.Low(), c.Runs())
	c.left(left)
	c.low, c.done, c.told = c.Low(), c.changes, now
	c.claim.Done(c.low, acked)
}

// Wait returns how long the claim's loop may sleep: until there is something to tell,
// and 5 s at most.
func (c *Committer) Wait(now time.Time) time.Duration {
	if !c.dirty() {
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

func (c *Committer) dirty() bool { return c.Low() != c.low || c.changes != c.done }
