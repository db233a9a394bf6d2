package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"orderclose"
)

const (
	// probeEvery is how often the broker is asked for its time; a clock that is
	// disciplined at all drifts by far less than a millisecond in between.
	probeEvery = 30 * time.Second
	// probeRetry is how soon a round without a sample is followed by another.
	probeRetry = time.Second
	// probeSlow is the round trip above which an answer is no sample.
	probeSlow = 200 * time.Millisecond
	// probesPerRound: the one with the shortest round trip counts.
	probesPerRound = 3
	// stepEvery is how often it is looked whether the local clock was set, and stepSize
	// by how much that shows. The same size shows that the answer to an append does not
	// fit the estimate; where brokers' clocks differ for good, the broker is asked each
	// stepEvery for that reason.
	stepEvery = 5 * time.Second
	stepSize  = 100 * time.Millisecond
)

// BrokerClock is the brokers' clock, as far as it can be told from here: what it was
// when Keep asked last, and the time that has passed since by the local monotonic clock,
// so that nothing is early while somebody sets the local clock. Until it was asked it is
// the local one.
//
// There is one estimate, of the clock of the broker that leads the topic that Keep
// appends to. The clocks of other brokers may differ from it.
type BrokerClock struct {
	local   func() reading
	asked   atomic.Pointer[sample]
	far     chan struct{} // an append time did not fit the estimate
	stepped chan struct{} // it did not, because a broker's clock was set

	mu      sync.Mutex
	leaders map[appendedTo]span // as the last append to each partition told
}

// appendedTo is a partition that was appended to.
type appendedTo struct {
	topic     string
	partition int
}

// span is by how much a leader's clock is ahead of the estimate, as far as the answer to
// one append tells: at least and at most.
type span struct{ least, most time.Duration }

// apart says whether two spans differ by more than measuring explains.
func (s span) apart(other span) bool {
	return s.least-other.most > stepSize || other.least-s.most > stepSize
}

// reading is one moment by this machine's clocks: one that may be set, and the time that
// has passed by one that may not.
type reading struct {
	wall time.Time
	mono time.Duration
}

// sample is one moment by this machine's clocks and the brokers'.
type sample struct {
	local  reading
	broker time.Time
}

// offset is by how much the brokers' clock was ahead.
func (s sample) offset() time.Duration { return s.broker.Sub(s.local.wall) }

// NewBrokerClock returns a clock that begins as the local one; nil is time.Now.
func NewBrokerClock(local func() time.Time) *BrokerClock {
	if local == nil {
		local = time.Now
	}
	began := local()
	return &BrokerClock{
		far: make(chan struct{}, 1), stepped: make(chan struct{}, 1), leaders: map[appendedTo]span{},
		local: func() reading {
			now := local()
			return reading{now.Round(0), now.Sub(began)}
		},
	}
}

// Now is the brokers' time.
func (c *BrokerClock) Now() time.Time { return c.at(c.local()) }

// at is the brokers' time at a local moment.
func (c *BrokerClock) at(now reading) time.Time {
	asked := c.asked.Load()
	if asked == nil {
		return now.wall
	}
	return asked.broker.Add(now.mono - asked.local.mono)
}

// Offset is by how much the brokers' clock was ahead of the local one when it was asked
// last.
func (c *BrokerClock) Offset() time.Duration {
	if asked := c.asked.Load(); asked != nil {
		return asked.offset()
	}
	return 0
}

// Keep asks at once and then each 30 s until ctx ends, by records that it appends to the
// topic, which must have LogAppendTime. It asks sooner if the local clock was set, or if
// the append time of any append of the cluster does not fit the estimate: a broker's clock
// was set. Keep calls told, if it is not nil, with each offset that it has measured.
func (c *BrokerClock) Keep(ctx context.Context, cluster *Cluster, topic string, told func(offset time.Duration)) {
	cluster.clock.Store(c)
	defer cluster.clock.CompareAndSwap(c, nil)
	complained := time.Now() // while Kafka starts, nothing is wrong yet
	for {
		pause := probeRetry
		// What does not fit from here on may have been set after the answer.
		for _, before := range []chan struct{}{c.far, c.stepped} {
			select {
			case <-before:
			default:
			}
		}
		asked, err := c.ask(ctx, cluster, topic)
		if err != nil && ctx.Err() == nil && time.Since(complained) >= probeEvery {
			complained = time.Now()
			cluster.opts.Logger.Warn("the brokers' time cannot be told, trying again", "topic", topic, "err", err)
		}
		if asked != nil {
			c.asked.Store(asked)
			if told != nil {
				told(asked.offset())
			}
			pause = probeEvery
		}
		if !c.rest(ctx, pause) {
			return
		}
	}
}

// rest waits for d, or until the local clock was set: a machine that was suspended is
// behind by as long. An append time that does not fit the estimate makes it 5 s at most,
// and ends it if a broker's clock was set. It reports false as soon as ctx ends.
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
		case <-c.far:
			d = min(d, stepEvery)
		case <-timer.C:
		}
	}
}

// compare looks whether the append time of a partition fits the estimate. The append was
// sent at a local moment, and has been answered just now.
//
// If it does not fit, the brokers are asked again: at once if it differs from what the
// last append to the partition told, so that a clock was set since then, or if nothing
// is known of the leader and it is behind. While the estimate is ahead, records that are
// not due are forwarded, and come back, over and over.
func (c *BrokerClock) compare(to appendedTo, sent reading, at time.Time) {
	leader := span{at.Sub(c.at(c.local())), at.Add(time.Millisecond).Sub(c.at(sent))}
	c.mu.Lock()
	before, known := c.leaders[to]
	c.leaders[to] = leader
	c.mu.Unlock()

	behind, ahead := leader.most < -stepSize, leader.least > stepSize
	ask := c.far
	switch {
	case !behind && !ahead:
		return
	case known && leader.apart(before), !known && behind:
		ask = c.stepped
	}
	select {
	case ask <- struct{}{}:
	default:
	}
}

// wasSet says whether the wall clock went another way than the monotonic one between
// two readings of both. Pure.
func wasSet(from, to reading) bool {
	return (to.wall.Sub(from.wall) - (to.mono - from.mono)).Abs() > stepSize
}

// ask asks a few times and believes the fastest answer; nil if none was quick enough,
// or told a time. The error is the last one, if there was no answer at all.
func (c *BrokerClock) ask(ctx context.Context, cluster *Cluster, topic string) (asked *sample, err error) {
	best := probeSlow + 1
	for range probesPerRound {
		sent := c.local()
		m := orderclose.Message{Value: fmt.Appendf(nil, `{"probe":%d}`, sent.wall.UnixMilli())}
		at, failed := cluster.Append(ctx, topic, 0, []orderclose.Message{m})
		answered := c.local()
		if failed != nil {
			err = failed
			continue
		}
		if at.IsZero() {
			continue
		}
		if trip := answered.mono - sent.mono; trip < best {
			best, asked = trip, &sample{answered, answered.wall.Add(offsetOf(answered.wall.Add(-trip), answered.wall, at))}
		}
	}
	if asked != nil {
		err = nil
	}
	return asked, err
}

// offsetOf returns the offset of the broker's clock, if it appended at the given
// time, cut to milliseconds, what was sent and answered at these local times.
// The broker's clock is at least as much ahead as if it had appended just before
// the answer, and less than if just after the sending, a millisecond for the cut
// included. Of what is possible, no offset is believed first, then the least:
// a clock that is taken to be slower than it is makes nothing early.
func offsetOf(sent, answered, at time.Time) time.Duration {
	least, most := at.Sub(answered), at.Add(time.Millisecond).Sub(sent)
	if least <= 0 && most >= 0 {
		return 0
	}
	return least
}

// Measure asks once for the offset, as Keep does, and believes it from then on. It
// reports false without an error if no answer was quick enough, or told a time.
func (c *BrokerClock) Measure(ctx context.Context, cluster *Cluster, topic string) (offset time.Duration, ok bool, err error) {
	asked, err := c.ask(ctx, cluster, topic)
	if asked == nil {
		return 0, false, err
	}
	c.asked.Store(asked)
	return asked.offset(), true, nil
}
