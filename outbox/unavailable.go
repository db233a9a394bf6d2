package outbox

import (
	"log/slog"
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

// unavailable holds the partitions whose last append failed, and logs when a partition
// starts to fail and when it works again. It is safe for concurrent use.
type unavailable struct {
	logger  *slog.Logger
	mu      sync.Mutex
	outages map[topicPartition]outage
}

func newUnavailable(logger *slog.Logger) *unavailable {
	return &unavailable{logger: logger, outages: map[topicPartition]outage{}}
}

// allow reports whether to append to a partition now, and whether that append is a
// probe of an unavailable partition. canProbe says that the caller can probe. Of
// several concurrent callers one gets the probe.
func (u *unavailable) allow(p topicPartition, canProbe bool) (try, probe bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	o, known := u.outages[p]
	switch {
	case !known:
		return true, false
	case !canProbe, time.Now().Before(o.until):
		return false, false
	}
	o.until = time.Now().Add(o.pause)
	u.outages[p] = o
	return true, true
}

// failed records a failed append to a partition, or a failed lookup of a topic's
// partitions.
func (u *unavailable) failed(p topicPartition, err error) {
	u.mu.Lock()
	now := time.Now()
	o, known := u.outages[p]
	if !known {
		o.since = now
	}
	o.pause = nextProbePause(o.pause)
	o.until = now.Add(o.pause)
	report := now.Sub(o.logged) >= logInterval
	if report {
		o.logged = now
	}
	u.outages[p] = o
	u.mu.Unlock()
	switch {
	case !report:
	case p.partition == wholeTopic:
		u.logger.Warn("partition lookup failed, rows for this topic wait", "topic", p.topic, "failing_since", o.since, "err", err)
	default:
		u.logger.Warn("append to a partition failed, its rows stay in the outbox", "topic", p.topic, "partition", p.partition, "failing_since", o.since, "err", err)
	}
}

// succeeded records a successful append or lookup: p is no longer unavailable.
func (u *unavailable) succeeded(p topicPartition) {
	u.mu.Lock()
	_, news := u.outages[p]
	delete(u.outages, p)
	u.mu.Unlock()
	switch {
	case !news:
	case p.partition == wholeTopic:
		u.logger.Info("partition lookup works again", "topic", p.topic)
	default:
		u.logger.Info("a partition accepts records again", "topic", p.topic, "partition", p.partition)
	}
}

// nextProbePause returns the pause after the next failed probe; last is 0 after the first
// failure.
func nextProbePause(last time.Duration) time.Duration {
	return min(max(2*last, firstProbePause), maxProbePause)
}
