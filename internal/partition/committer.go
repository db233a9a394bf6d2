package partition

import (
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// commitEvery is how often a committer passes its position to the claim. The claim
// commits as often.
const commitEvery = 200 * time.Millisecond

// maxSleep is the longest time that a loop sleeps without reading the clock. If the wall
// clock is set forward, nothing is late by more than this.
const maxSleep = 5 * time.Second

// committer passes the progress of a claim to its Done function: the low watermark, and
// the runs of done offsets above it, so that the next owner repeats only what was in
// flight. It belongs to the goroutine of the claim's loop.
type committer struct {
	*watermark
	claim            wire.Claim
	unrecorded       func(runs int) // counts runs that did not fit into the metadata
	low              int64          // the low watermark of the last commit
	committedChanges int            // watermark.changes at the last commit
	committedAt      time.Time
}

// newCommitter returns a committer of a claim that continues where the former owner
// stopped. unrecorded counts runs of done records that did not fit into the metadata of a
// commit and may be repeated; it may be nil.
func newCommitter(claim wire.Claim, unrecorded func(runs int)) *committer {
	w := newWatermark(claim.Offset)
	w.doneAhead = wire.DecodeRuns(claim.Offset, claim.Acked) //mutant:takeover-repeats-done
	if unrecorded == nil {
		unrecorded = func(int) {}
	}
	return &committer{watermark: w, claim: claim, unrecorded: unrecorded, low: claim.Offset}
}

// DoneAll marks the offsets of acked records as done.
func (c *committer) DoneAll(records []wire.RawRecord) {
	for i := range records {
		c.Done(records[i].Offset)
	}
}

// Commit commits the position if it has changed: at most every 200 ms, or at once.
func (c *committer) Commit(now time.Time, atOnce bool) {
	if !c.dirty() || !atOnce && now.Sub(c.committedAt) < commitEvery {
		return
	}
	acked, left := wire.EncodeRuns(c.Low(), c.Runs())
	c.unrecorded(left)
	c.low, c.committedChanges, c.committedAt = c.Low(), c.changes, now
	c.claim.Done(c.low, acked)
}

// Wait returns how long the loop may sleep: until the next commit is due, at most 5 s.
func (c *committer) Wait(now time.Time) time.Duration {
	if !c.dirty() {
		return maxSleep
	}
	return max(commitEvery-now.Sub(c.committedAt), 0)
}

// CommitNow commits the position even if it has not changed. It is for a position that was
// found in the log, not reached by progress.
func (c *committer) CommitNow(now time.Time) {
	c.low = -1
	c.Commit(now, true)
}

func (c *committer) dirty() bool { return c.Low() != c.low || c.changes != c.committedChanges }
