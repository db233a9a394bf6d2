package outbox

import (
	"sync"
	"time"
)

// A partition that takes no records, such as one without a leader, is left alone for a
// while: firstShun, then twice as long up to lastShun each time that it still takes
// none. Short, since what waits for it is late when it is back.
const (
	firstShun = time.Second
	lastShun  = 5 * time.Second
	// trialRecords is how many records a shunned partition is tried with. If they are
	// written and the answer is too late, so many are written again.
	trialRecords = 100
	// pastBatches is how many batches of rows for shunned partitions are looked past at
	// once, and shunnedPause the pause after that: somebody has to read them.
	pastBatches  = 5
	shunnedPause = 2 * time.Second
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int
}

// shun is how long a place is left alone.
type shun struct {
	until time.Time
	pause time.Duration // the last one
}

// shunned are the places that took no records when they were last tried. Safe for
// concurrent use.
type shunned struct {
	mu     sync.Mutex
	places map[place]shun
}

func newShunned() *shunned { return &shunned{places: map[place]shun{}} }

// may says whether to try a place now, and whether that is a trial of one that is
// shunned, for who has time for one. Of several who ask at once, one gets the trial.
func (s *shunned) may(p place, hasTime bool) (try, trial bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, known := s.places[p]
	switch {
	case !known:
		return true, false
	case !hasTime, time.Now().Before(is.until):
		return false, false
	}
	is.until = time.Now().Add(is.pause)
	s.places[p] = is
	return true, true
}

// failed notes that a place took no records, and says whether that is news.
func (s *shunned) failed(p place) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, known := s.places[p]
	is.pause = nextShun(is.pause)
	is.until = time.Now().Add(is.pause)
	s.places[p] = is
	return !known
}

// took notes that a place took records, and says whether that is news.
func (s *shunned) took(p place) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, news = s.places[p]
	delete(s.places, p)
	return news
}

// nextShun is how long to leave a place alone after a pause; zero: it was not shunned.
// Pure.
func nextShun(last time.Duration) time.Duration { return min(max(2*last, firstShun), lastShun) }
