package kafka

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// probeEvery is the time between two measurements. A clock that is synchronised at all
	// drifts by far less than a millisecond in between.
	probeEvery = 30 * time.Second
	// probeRetry is the pause after a measurement without a sample.
	probeRetry = time.Second
	// probeSlow is the longest round trip of a sample. A slower answer is ignored.
	probeSlow = 200 * time.Millisecond
	// sampleAge is how long Keep waits for such a sample. Then a slower answer is a sample too: its offset is wrong by a
	// round trip at most, and that makes nothing early.
	sampleAge = time.Minute
	// probesPerRound is the number of probes of a measurement. The probe with the shortest
	// round trip counts.
	probesPerRound = 3
	// stepEvery is how often Keep checks whether the local clock was set. It is also the
	// shortest time between two measurements where brokers' clocks differ permanently.
	stepEvery = 5 * time.Second
	// stepSize is the smallest difference that shows that the local clock was set, or that
	// the append time of an answer does not match the estimate.
	stepSize = 100 * time.Millisecond
)

// BrokerClock estimates the brokers' clock. The estimate is the brokers' time at the last
// measurement, plus the time since then by the local monotonic clock. So nothing happens
// early when somebody sets the local clock. Before the first measurement the estimate is
// the local time. A BrokerClock is safe for concurrent use.
//
// There is one estimate: of the clock of the broker that leads partition 0 of the topic
// that Keep appends to. The clocks of other brokers may differ from it.
//
// databaseclock.go adds the database's clock. Its time is in the probes of processes that know it.
type BrokerClock struct {
	// Database returns the database's time; nil if this process knows no database. Set it before
	// Keep.
	Database func(context.Context) (time.Time, error)

	local         func() reading
	lastSample    atomic.Pointer[sample]
	databaseAhead atomic.Int64  // a time.Duration, see DatabaseAhead
	mismatch      chan struct{} // an append time did not match the estimate
	stepped       chan struct{} // an append time did not match because a broker's clock was set

	mu      sync.Mutex
	leaders map[topicPartition]offsetRange // from the last append to each partition
}

// offsetRange is by how much a leader's clock is ahead of the estimate, at least and at
// most, measured by one append.
type offsetRange struct{ least, most time.Duration }

// apart reports whether two ranges differ by more than the error of measurement.
func (s offsetRange) apart(other offsetRange) bool {
	return s.least-other.most > stepSize || other.least-s.most > stepSize
}

// reading is one moment by both local clocks: the wall clock, which may be set, and the
// monotonic clock, counted from NewBrokerClock.
type reading struct {
	wall time.Time
	mono time.Duration
}

// sample is one moment by the local clocks and by the brokers' clock.
type sample struct {
	local         reading
	broker        time.Time
	databaseAhead []time.Duration // by how much the database's clock was ahead of the brokers'; empty: not asked
}

// offset returns by how much the brokers' clock was ahead of the local wall clock.
func (s sample) offset() time.Duration { return s.broker.Sub(s.local.wall) }

// NewBrokerClock returns a clock that starts with the local time. local may be nil, which
// means time.Now.
func NewBrokerClock(local func() time.Time) *BrokerClock {
	if local == nil {
		local = time.Now
	}
	began := local()
	return &BrokerClock{
		mismatch: make(chan struct{}, 1), stepped: make(chan struct{}, 1), leaders: map[topicPartition]offsetRange{},
		local: func() reading {
			now := local()
			return reading{now.Round(0), now.Sub(began)}
		},
	}
}

// Now returns the brokers' time.
func (c *BrokerClock) Now() time.Time { return c.at(c.local()) }

// at returns the brokers' time at a local moment.
func (c *BrokerClock) at(now reading) time.Time {
	last := c.lastSample.Load()
	if last == nil {
		return now.wall
	}
	return last.broker.Add(now.mono - last.local.mono) //mutant:local-clock-moves
}

// Keep measures the brokers' clock at once and then every 30 s, until ctx ends. It measures
// by probe records that it appends to the topic, which must use LogAppendTime. It measures
// sooner if the local clock was set, or if the append time of any append by the cluster does
// not match the estimate, which shows that a broker's clock was set or differs. Keep calls
// onOffset, if not nil, with each measured offset.
func (c *BrokerClock) Keep(ctx context.Context, cluster *Cluster, topic string, onOffset func(offset time.Duration)) {
	cluster.clock.Store(c)
	defer cluster.clock.CompareAndSwap(c, nil)
	started, said := time.Now(), "" // no warning while Kafka starts, and one for each reason
	sampled := started
	for {
		pause := probeRetry
		// Forget earlier mismatches. A mismatch from here on may be newer than the measurement.
		for _, earlier := range []chan struct{}{c.mismatch, c.stepped} {
			select {
			case <-earlier:
			default:
			}
		}
		slowest := probeSlow
		if time.Since(sampled) >= sampleAge {
			slowest = math.MaxInt64
		}
		measured, err := c.measure(ctx, cluster, topic, slowest)
		if err != nil && ctx.Err() == nil && time.Since(started) >= probeEvery && err.Error() != said {
			said = err.Error()
			cluster.opts.Logger.Warn("measuring the brokers' clock failed, will retry", "topic", topic, "err", err)
		}
		if measured != nil {
			said, sampled = "", time.Now()
			c.lastSample.Store(measured)
			if err := c.learnDatabase(ctx, cluster, topic, measured.databaseAhead, databaseTold); err != nil && ctx.Err() == nil {
				cluster.opts.Logger.Warn("learning the database's clock from the control topic failed, will retry", "topic", topic, "err", err)
			}
			if onOffset != nil {
				onOffset(measured.offset())
			}
			pause = probeEvery
		}
		if !c.rest(ctx, pause) {
			return
		}
	}
}

// rest waits for d, or until the local wall clock was set. A machine that was suspended
// counts as one whose clock was set. An append time that does not match the estimate
// shortens the wait to at most 5 s, and ends it at once if a broker's clock was set. rest
// returns false as soon as ctx ends.
func (c *BrokerClock) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for began := c.local(); ; {
		now := c.local()
		passed := now.mono - began.mono
		if passed >= d || wasSet(began, now) {
			return ctx.Err() == nil
		}
		timer.Reset(min(stepEvery, d-passed))
		select {
		case <-ctx.Done():
			return false
		case <-c.stepped:
			return true
		case <-c.mismatch:
			d = min(d, stepEvery) //mutant:append-time-ignored
		case <-timer.C:
		}
	}
}

// compare compares the append time of a partition with the estimate. The append was sent
// at the local moment sent, and its answer has just arrived.
//
// If the append time does not match, the clock is measured again. It is measured at once if
// the append time also does not match the last append to the same partition: then a clock
// was set since. It is measured at once, too, if nothing is known of the leader and its
// clock is behind: while the estimate is ahead, relays forward records that are not due, and
// these records come back, again and again. In all other cases rest first waits until stepEvery
// has passed.
func (c *BrokerClock) compare(to topicPartition, sent reading, at time.Time) {
	leader := offsetRange{at.Sub(c.at(c.local())), at.Add(time.Millisecond).Sub(c.at(sent))}
	c.mu.Lock()
	before, known := c.leaders[to]
	c.leaders[to] = leader
	c.mu.Unlock()

	behind, ahead := leader.most < -stepSize, leader.least > stepSize
	signal := c.mismatch
	switch {
	case !behind && !ahead:
		return
	case known && leader.apart(before), !known && behind:
		signal = c.stepped
	}
	select {
	case signal <- struct{}{}:
	default:
	}
}

// wasSet reports whether the wall clock and the monotonic clock have advanced differently
// between two readings.
func wasSet(from, to reading) bool {
	return (to.wall.Sub(from.wall) - (to.mono - from.mono)).Abs() > stepSize
}

// measure sends probesPerRound probes and returns the sample with the shortest round trip. A
// probe brings a sample if its answer arrives within slowest and has an append time. If no
// probe brings a sample, measure returns nil and the error of the last probe that failed or had no
// append time (ErrNoAppendTime); the error is nil if all were only slow.
func (c *BrokerClock) measure(ctx context.Context, cluster *Cluster, topic string, slowest time.Duration) (best *sample, err error) {
	shortest, database := slowest, c.askDatabase(ctx)
	for range probesPerRound {
		sent := c.local()
		at, failed := cluster.Append(ctx, topic, 0, []wire.Message{probeOf(sent, database)})
		answered := c.local()
		if failed != nil {
			err = failed
			continue
		}
		if at.IsZero() {
			err = ErrNoAppendTime
			continue
		}
		if trip := answered.mono - sent.mono; trip <= shortest {
			shortest, best = trip, &sample{local: answered, broker: answered.wall.Add(offsetOf(answered.wall.Add(-trip), answered.wall, at))}
			if database != nil {
				best.databaseAhead = []time.Duration{database.when(sent).Sub(at)}
			}
		}
	}
	if best != nil {
		err = nil
	}
	return best, err
}

// offsetOf returns the offset of the broker's clock from the local clock. The probe was
// sent and answered at the given local times, and the broker appended it at its own time
// at, which is truncated to milliseconds. The smallest possible offset assumes that the
// broker appended just before the answer. The largest assumes that it appended right after
// the sending, and adds the truncated millisecond. offsetOf returns zero if zero is
// possible, and else the smallest offset: a clock that is believed to be slower than it is
// makes nothing early.
func offsetOf(sent, answered, at time.Time) time.Duration {
	least, most := at.Sub(answered), at.Add(time.Millisecond).Sub(sent)
	if least <= 0 && most >= 0 {
		return 0
	}
	return least //mutant:earliest-offset-believed
}

// Measure measures the offset once, as Keep does, and uses it from then on. If ok is false,
// nothing was measured: err is the error of the last probe that failed, ErrNoAppendTime, or nil if every
// probe was answered, but after more than 200 ms.
func (c *BrokerClock) Measure(ctx context.Context, cluster *Cluster, topic string) (offset time.Duration, ok bool, err error) {
	measured, err := c.measure(ctx, cluster, topic, probeSlow)
	if measured == nil {
		return 0, false, err
	}
	c.lastSample.Store(measured)
	return measured.offset(), true, nil
}
