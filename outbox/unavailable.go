package outbox

import (
	"sync"
	"time"
)

// Pauses between two probes of an unavailable partition, such as one without a
// leader: firstProbePause, then doubled up to maxProbePause. They are short, because
// the waiting rows are late once the partition is back.
const (
	firstProbePause = time.Second
	maxProbePause   = 5 * time.Second
	// probeRecords is how many records a probe appends. If they are written but the
	// answer comes too late, that many records are written again.
	probeRecords = 100
	// wholeTopic stands for all partitions of a topic whose partitions are unknown.
	wholeTopic = -1
	// logInterval is the time between two log lines about a partition that stays
	// unavailable.
	logInterval = time.Minute
)

// topicPartition is a partition of a topic, or wholeTopic.
type topicPartition struct {
	topic     string
	partition int
}

// outage is the state of an unavailable partition.
type outage struct {
	until  time.Time     // no probe before this time
	pause  time.Duration // the current pause between probes
	since  time.Time     // first failure
	logged time.Time     // last log line
}

// unavailable holds the partitions whose last append failed. It is safe for concurrent
// use.
type unavailable struct {
	mu      sync.Mutex
	outages map[topicPartition]outage
}

func newUnavailable() *unavailable { return &unavailable{outages: map[topicPartition]outage{}} }

// allow reports whether to append to a partition now, and whether that append is a
// probe of an unavailable partition. canProbe says that the caller can probe. Of
// several concurrent callers one gets the probe.
func (s *unavailable) allow(p topicPartition, canProbe bool) (try, probe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.outages[p]
	switch {
	case !known:
		return true, false
	case !canProbe, time.Now().Before(o.until):
		return false, false
	}
	o.until = time.Now().Add(o.pause)
	s.outages[p] = o
	return true, true
}

// failed records a failed append. It returns the time of the first failure, and
// whether to log it.
func (s *unavailable) failed(p topicPartition) (since time.Time, report bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	o, known := s.outages[p]
	if !known {
		o.since = now
	}
	o.pause = nextProbePause(o.pause)
	o.until = now.Add(o.pause)
	if report = now.Sub(o.logged) >= logInterval; report {
		o.logged = now
	}
	s.outages[p] = o
	return o.since, report
}

// succeeded records a successful append, and reports whether the partition was
// unavailable before.
func (s *unavailable) succeeded(p topicPartition) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, news = s.outages[p]
	delete(s.outages, p)
	return news
}

// nextProbePause returns the pause after the next failed probe; last is 0 after the first
// failure.
func nextProbePause(last time.Duration) time.Duration {
	return min(max(2*last, firstProbePause), maxProbePause)
}
