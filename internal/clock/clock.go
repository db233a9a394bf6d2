// Package clock knows three clocks: that of this machine, that of the brokers, which sets the append times of records, and that
// of the database, which decides when an order is due.
//
// Make a Clock with New, and ask it for the time. A process that releases or schedules records also runs Keep, which measures the
// other two clocks until its context ends.
//
//	clock.go    what is known: the times, and whether a clock may be wrong
//	keep.go     measures the brokers' clock, by probe records in the control topic
//	database.go learns the database's clock, from the probes of processes that know it
//
// The brokers' time is that of the last measurement, plus the time since then by the monotonic clock. So nothing happens early when
// somebody sets the clock of the machine. There is one estimate: of the clock of the broker that leads partition 0 of the control
// topic. By how much other leaders differ from it is known from the appends of this process.
//
// Of all offsets that explain a measurement the smallest counts: a clock that is believed to be slower than it is makes nothing
// early. Before the first measurement all times are those of this machine.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stepSize is the smallest difference that shows that a clock was set, or that an append time does not match the estimate. Two
	// measurements may differ by the duration of a request.
	stepSize = 100 * time.Millisecond
	// maxSkew is the largest difference between two clocks that is not doubtful.
	maxSkew = 30 * time.Second
)

// Clock is what a process knows of the three clocks. Make it with New. It is safe for concurrent use.
type Clock struct {
	now           func() time.Time
	local         func() reading
	lastSample    atomic.Pointer[sample]
	databaseAhead atomic.Int64  // a time.Duration, see DatabaseAhead
	mismatch      chan struct{} // an append time shows that the estimate may be wrong

	mu      sync.Mutex
	leaders map[partition]offsetRange // from the last append to each partition
}

// partition is a partition of a topic.
type partition struct {
	topic  string
	number int
}

// reading is one moment by both clocks of this machine: the wall clock, which may be set, and the monotonic clock, counted from New.
type reading struct {
	wall time.Time
	mono time.Duration
}

// sample is one moment by the clocks of this machine and by the brokers' clock.
type sample struct {
	local         reading
	broker        time.Time
	databaseAhead []time.Duration // by how much the database's clock was ahead of the brokers'; empty: not asked
}

// offset returns by how much the brokers' clock was ahead of the machine's wall clock.
func (s sample) offset() time.Duration { return s.broker.Sub(s.local.wall) }

// offsetRange is by how much a clock is ahead of another one, at least and at most.
type offsetRange struct{ least, most time.Duration }

// rangeOf returns the range of a clock that was asked and has answered at the given times of another clock, and showed at in between,
// truncated to milliseconds. The offset is the least if the clock was read just before the answer, and the most if it was read right
// after the question.
func rangeOf(sent, answered, at time.Time) offsetRange {
	return offsetRange{at.Sub(answered), at.Add(time.Millisecond).Sub(sent)}
}

// smallest returns the offset nearest to zero.
func (s offsetRange) smallest() time.Duration { return max(s.least, min(s.most, 0)) }

// believed returns zero if zero is possible, and else the least offset: a clock that is believed to be slower than it is makes nothing
// early.
func (s offsetRange) believed() time.Duration {
	if s.smallest() == 0 {
		return 0
	}
	return s.least //mutant:earliest-offset-believed
}

// apart reports whether two ranges differ by more than the error of measurement.
func (s offsetRange) apart(other offsetRange) bool {
	return s.least-other.most > stepSize || other.least-s.most > stepSize
}

// New returns a Clock that has measured nothing. now is the clock of this machine; nil: time.Now.
func New(now func() time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	began := now()
	return &Clock{
		mismatch: make(chan struct{}, 1), leaders: map[partition]offsetRange{}, now: now,
		local: func() reading {
			at := now()
			return reading{at.Round(0), at.Sub(began)}
		},
	}
}

// Now returns the time of this machine. It measures how long something waits in memory.
func (c *Clock) Now() time.Time { return c.now() }

// Broker returns the brokers' time.
func (c *Clock) Broker() time.Time { return c.at(c.local()) }

// Database returns the database's time. It is the brokers' time if the two clocks differ by less than half a second, or while the
// database's clock is not known.
func (c *Clock) Database() time.Time { return c.Broker().Add(c.DatabaseAhead()) }

// NotBefore returns Database, or a later time if a record shows one. The record was appended at a time of its leader's clock, which may
// be permanently ahead of the brokers' clock, and was read at the given time of Now. A difference of more than 30 s comes from a clock
// that was set, and is ignored.
func (c *Clock) NotBefore(appended, read time.Time) time.Time {
	at := c.Database()
	if shown := appended.Add(c.Now().Sub(read) + c.DatabaseAhead()); shown.After(at) && shown.Sub(at) <= maxSkew {
		return shown
	}
	return at
}

// DatabaseAhead returns by how much Database is ahead of Broker.
func (c *Clock) DatabaseAhead() time.Duration { return time.Duration(c.databaseAhead.Load()) }

// DatabaseAheadOf returns by how much Database is ahead of the clock that sets the append times of a partition: that of its leader.
func (c *Clock) DatabaseAheadOf(topic string, number int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.DatabaseAhead() - c.leaders[partition{topic, number}].smallest()
}

// Doubtful reports whether a clock may be wrong. A clock may be wrong if Database differs by more than 30 s from the time of this machine,
// or from shown. shown is the time of the database in the answer that the caller has just received; it is zero if there is none.
//
// A caller that is in doubt keeps the order in memory, waits by the monotonic clock, and asks again. It computes no release time: that
// time would stay wrong after the clock was corrected.
func (c *Clock) Doubtful(shown time.Time) bool {
	differs := func(from time.Time) bool { return c.Database().Sub(from).Abs() > maxSkew }
	return differs(c.Now()) || !shown.IsZero() && differs(shown)
}

// Moment is one moment by Database and by the monotonic clock.
type Moment struct{ database, mono time.Time }

// Since returns this moment, and by how much Database was set back since an earlier one. back is 0 if that is less than 100 ms, or if
// the earlier moment is zero. Otherwise the offsets of leaders are no longer known.
func (c *Clock) Since(earlier Moment) (now Moment, back time.Duration) {
	now = Moment{c.Database(), time.Now()}
	if !earlier.mono.IsZero() {
		back = now.mono.Sub(earlier.mono) - now.database.Sub(earlier.database)
	}
	if back < stepSize {
		return now, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.leaders)
	return now, back
}

// at returns the brokers' time at a moment of this machine.
func (c *Clock) at(now reading) time.Time {
	last := c.lastSample.Load()
	if last == nil {
		return now.wall
	}
	return last.broker.Add(now.mono - last.local.mono) //mutant:local-clock-moves
}

// Appended tells the Clock the time of an append to a partition, by the clock of its leader. The append was sent and answered at the
// given times of the monotonic clock.
//
// The clock is measured again at once if the append time does not match the estimate, unless the last append to the same partition did
// not match either, by the same difference: leaders' clocks may differ permanently.
func (c *Clock) Appended(topic string, number int, sent, answered, at time.Time) {
	broker := func(moment time.Time) time.Time { return c.Broker().Add(-time.Since(moment)) }
	leader, of := rangeOf(broker(sent), broker(answered), at), partition{topic, number}
	c.mu.Lock()
	before, known := c.leaders[of]
	c.leaders[of] = leader
	c.mu.Unlock()
	if leader.smallest().Abs() > stepSize && (!known || leader.apart(before)) {
		select {
		case c.mismatch <- struct{}{}:
		default:
		}
	}
}
