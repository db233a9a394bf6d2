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
	// wholeTopic is the partition of a topic of which it is not known which it has.
	wholeTopic = -1
	// remindEvery is how often it is told that a place still takes no records.
	remindEvery = time.Minute
)

// place is a partition of a topic, or wholeTopic.
type place struct {
	topic     string
	partition int
}

// shun is how long a place is left alone.
type shun struct {
	until time.Time
	pause time.Duration // the last one
	since time.Time     // when it took none first
	told  time.Time     // when that was told last
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

// failed notes that a place took no records, and says since when, and whether to tell.
func (s *shunned) failed(p place) (since time.Time, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	is, known := s.places[p]
	if !known {
		is.since = now
	}
	is.pause = nextShun(is.pause)
	is.until = now.Add(is.pause)
	if tell = now.Sub(is.told) >= remindEvery; tell {
		is.told = now
	}
	s.places[p] = is
	return is.since, tell
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
