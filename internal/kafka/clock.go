package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"orderclose"
	"orderclose/internal/partition"
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
	// by how much that shows.
	stepEvery = 5 * time.Second
	stepSize  = 100 * time.Millisecond
)

// BrokerClock is the brokers' clock, as far as it can be told from here: what it was
// when Keep asked last, and the time that has passed since by the local monotonic clock,
// so that nothing is early while somebody sets the local clock. Until it was asked it is
// the local one.
type BrokerClock struct {
	local func() reading
	asked atomic.Pointer[sample]
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
	return &BrokerClock{local: func() reading {
		now := local()
		return reading{now.Round(0), now.Sub(began)}
	}}
}

// Now is the brokers' time.
func (c *BrokerClock) Now() time.Time {
	now, asked := c.local(), c.asked.Load()
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

// Keep asks at once and then each 30 s until ctx ends, sooner if the local clock was
// set, by records that it appends to the topic, which must have LogAppendTime. told, if not nil,
// hears of each sample.
func (c *BrokerClock) Keep(ctx context.Context, cluster *Cluster, topic string, told func(offset time.Duration)) {
	var complained time.Time
	for {
		pause := probeRetry
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
// behind by as long. It reports false as soon as ctx ends.
func (c *BrokerClock) rest(ctx context.Context, d time.Duration) bool {
	for began := c.local(); ; {
		now := c.local()
		passed := now.mono - began.mono
		if passed >= d || stepped(began, now) {
			return ctx.Err() == nil
		}
		if !partition.Sleep(ctx, min(stepEvery, d-passed)) {
			return false
		}
	}
}

// stepped says whether the wall clock went another way than the monotonic one between
// two readings of both. Pure.
func stepped(from, to reading) bool {
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
