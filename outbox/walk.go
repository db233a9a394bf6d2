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
type skippedRows struct {
	mu       sync.Mutex
	any      bool      // some rows are skipped
	highest  int64     // highest id of a skipped row
	lastMark int64     // highest at the last mark
	start    int64     // highest at the mark before: at least visibilityLag ago
	markedAt time.Time // time of the last mark
}

// from returns the id after which a poll for new rows starts.
func (s *skippedRows) from() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.any {
		return 0
	}
	return s.start
}

// noteBatch records the highest id that was skipped in a batch; 0 if none was.
func (s *skippedRows) noteBatch(left int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.any = s.any || left > 0
	s.highest = max(s.highest, left)
	if now.Sub(s.markedAt) >= visibilityLag {
		s.start, s.lastMark, s.markedAt = s.lastMark, s.highest, now
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
	if !s.any || now.Before(w.resumeAt) {
		return 0, false
	}
	if w.next == 0 {
		*w = walk{end: s.highest}
	}
	return w.next, true
}

// noteWalked records a batch of the walk: its highest id, the highest id that was
// skipped, whether any row could be tried, and whether it was the last batch of the
// table.
func (s *skippedRows) noteWalked(w *walk, last, left int64, tried, end bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.next, w.highest, w.idle = last, max(w.highest, left), w.idle+1
	if tried {
		w.idle = 0
	}
	if end || last >= w.end {
		s.any = w.highest > 0
		if s.highest == w.end { // no row after the end of the walk was skipped meanwhile
			s.highest = w.highest
			s.lastMark, s.start = min(s.lastMark, s.highest), min(s.start, s.highest)
		}
		w.next, w.idle = 0, walkBatches // the next walk starts after a pause
	}
	if w.idle >= walkBatches {
		w.idle, w.resumeAt = 0, now.Add(walkPause)
	}
}
