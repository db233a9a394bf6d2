package outbox

import (
	"sync"
	"time"
)

const (
	// walkBatches is how many batches of skipped rows are read in a row if none of
	// them can be tried. walkPause follows them, because each batch costs the
	// database a read.
	walkBatches = 5
	walkPause   = 2 * time.Second
	// visibilityLag is how long ago the highest skipped row must have been seen
	// before polls for new rows start after it. Ids are assigned before their
	// transactions commit, so a lower id may become visible later than a higher id.
	// The walk finds the rows that become visible after visibilityLag.
	visibilityLag = 2 * time.Second
)

// skippedRows records which rows of a kind were skipped: rows that can for now be written
// neither to their topic nor to the dead-letter topic. While no rows are skipped,
// every poll starts at the lowest id. Otherwise polls for new rows start after the
// skipped rows, so that new rows do not wait until all skipped rows have been read.
// One worker walks through the skipped rows, a few batches at a time. It is safe for
// concurrent use.
//
// A mark is the highest skipped id at some time. Marks are visibilityLag apart, and polls
// start at the last mark but one. An example: rows 1 to 3 are for a missing topic. The poll at 0 s
// skips them, and marks 3. The poll at 1 s starts at the lowest id again. The poll at 2 s makes the next
// mark. All later polls start after 3, and find row 4 at once.
type skippedRows struct {
	mu         sync.Mutex
	any        bool      // some rows are skipped
	highest    int64     // highest id of a skipped row
	mark       int64     // highest at markedAt
	markBefore int64     // the mark before, at least visibilityLag older: polls start after it
	markedAt   time.Time // time of the last mark
}

// pollFrom returns the id after which a poll for new rows starts.
func (s *skippedRows) pollFrom() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.any {
		return 0
	}
	return s.markBefore
}

// notePolled records the highest id that was skipped in a batch of new rows; 0 if none was.
func (s *skippedRows) notePolled(skipped int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.any = s.any || skipped > 0
	s.highest = max(s.highest, skipped)
	if now.Sub(s.markedAt) >= visibilityLag {
		s.markBefore, s.mark, s.markedAt = s.mark, s.highest, now
	}
}

// walk is the leader's position in the skipped rows. A walk starts at the lowest id.
type walk struct {
	next     int64     // id after which the walk continues; 0: it starts again
	end      int64     // the walk ends here: the highest skipped id when it started
	highest  int64     // highest id that this walk skipped; 0: none
	idle     int       // batches in a row of which no row could be tried
	resumeAt time.Time // the walk continues at this time
}

// resume returns the id after which the walk continues, and whether it continues now.
func (s *skippedRows) resume(w *walk, now time.Time) (from int64, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.any || now.Before(w.resumeAt) { //mutant:skipped-never-retried
		return 0, false
	}
	if w.next == 0 {
		*w = walk{end: s.highest}
	}
	return w.next, true
}

// walked is a batch of a walk.
type walked struct {
	last    int64 // its highest id
	skipped int64 // the highest id that was skipped; 0: none
	tried   bool  // some row could be tried
	atEnd   bool  // it was the last batch of the table
}

// noteWalked records a batch of the walk.
func (s *skippedRows) noteWalked(w *walk, b walked, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.next, w.highest, w.idle = b.last, max(w.highest, b.skipped), w.idle+1
	if b.tried {
		w.idle = 0
	}
	if b.atEnd || b.last >= w.end {
		s.any = w.highest > 0
		if s.highest == w.end { // no row after the end of the walk was skipped meanwhile
			s.highest = w.highest
			s.mark, s.markBefore = min(s.mark, s.highest), min(s.markBefore, s.highest)
		}
		w.next, w.idle = 0, walkBatches // the next walk starts after a pause
	}
	if w.idle >= walkBatches {
		w.idle, w.resumeAt = 0, now.Add(walkPause)
	}
}
