package outbox

import (
	"sync"
	"time"
)

const (
	// pastBatches is how many batches of rows that were left are looked past in one go,
	// and walkPause the pause after that: the database has to read them.
	pastBatches = 5
	walkPause   = 2 * time.Second
	// lag is how far behind the newest row that was left a look for new rows begins, in
	// time: ids are taken before their transactions commit, and may become visible in
	// another order. What takes longer is found by the walk.
	lag = 2 * time.Second
)

// seen is what the workers of a kind know of rows that were left: those that can
// neither be published nor made dead letters of for now. While there are none every
// look begins at the lowest id. While there are some, new rows are looked for behind
// them, so that new rows never wait until all of them were read; and one worker walks
// through those that were left, a few batches at a time. Safe for concurrent use.
type seen struct {
	mu     sync.Mutex
	left   bool      // there are such rows
	top    int64     // the highest of their ids
	former int64     // top when it was marked last
	start  int64     // top when it was marked before: at least lag ago
	marked time.Time // when
}

// from is where a look for new rows begins.
func (s *seen) from() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		return 0
	}
	return s.start
}

// saw notes the highest id of the rows that were left of a batch; 0: none were.
func (s *seen) saw(left int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = s.left || left > 0
	s.top = max(s.top, left)
	if now.Sub(s.marked) >= lag {
		s.start, s.former, s.marked = s.former, s.top, now
	}
}

// walk is the leader's way through the rows that were left, from the lowest id on.
type walk struct {
	at   int64     // where it goes on; 0: at the beginning
	end  int64     // and where it ends: the highest id that was left when it began
	left int64     // the highest id that was left in it; 0: none was
	past int       // batches in a row of which nothing could be tried
	on   time.Time // when it goes on
}

// begin says whether the walk goes on now, and from where.
func (s *seen) begin(w *walk, now time.Time) (from int64, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left || now.Before(w.on) {
		return 0, false
	}
	if w.at == 0 {
		*w = walk{end: s.top}
	}
	return w.at, true
}

// walked notes a batch of the walk: the highest id in it, the highest that was left,
// whether any could be tried, and whether it was the last batch that there is.
func (s *seen) walked(w *walk, last, left int64, tried, end bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at, w.left, w.past = last, max(w.left, left), w.past+1
	if tried {
		w.past = 0
	}
	if end || last >= w.end {
		s.left = w.left > 0
		if s.top == w.end { // and nothing was left behind it meanwhile
			s.top = w.left
			s.former, s.start = min(s.former, s.top), min(s.start, s.top)
		}
		w.at, w.past = 0, pastBatches // the next one is begun after a pause
	}
	if w.past >= pastBatches {
		w.past, w.on = 0, now.Add(walkPause)
	}
}
