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
)

// BrokerClock is the brokers' clock, as far as it can be told from here: the local
// one and an offset, which Keep measures. Until then the offset is 0.
type BrokerClock struct {
	local  func() time.Time
	offset atomic.Int64 // nanoseconds
}

// NewBrokerClock returns a clock that begins as the local one; nil is time.Now.
func NewBrokerClock(local func() time.Time) *BrokerClock {
	if local == nil {
		local = time.Now
	}
	return &BrokerClock{local: local}
}

// Now is the brokers' time.
func (c *BrokerClock) Now() time.Time { return c.local().Add(c.Offset()) }

// Offset is by how much the brokers' clock is ahead of the local one.
func (c *BrokerClock) Offset() time.Duration { return time.Duration(c.offset.Load()) }

// Keep measures the offset at once and then each 30 s until ctx ends, by records
// that it appends to the topic, which must have LogAppendTime. told, if not nil,
// hears of each sample.
func (c *BrokerClock) Keep(ctx context.Context, cluster *Cluster, topic string, told func(offset time.Duration)) {
	var complained time.Time
	for {
		pause := probeRetry
		offset, ok, err := c.sample(ctx, cluster, topic)
		if err != nil && ctx.Err() == nil && time.Since(complained) >= probeEvery {
			complained = time.Now()
			cluster.opts.Logger.Warn("the brokers' time cannot be told, trying again", "topic", topic, "err", err)
		}
		if ok {
			c.offset.Store(int64(offset))
			if told != nil {
				told(offset)
			}
			pause = probeEvery
		}
		if !partition.Sleep(ctx, pause) {
			return
		}
	}
}

// sample asks a few times and believes the fastest answer. The error is the last
// one, if there was no answer at all.
func (c *BrokerClock) sample(ctx context.Context, cluster *Cluster, topic string) (offset time.Duration, ok bool, err error) {
	best := probeSlow + 1
	for range probesPerRound {
		sent := c.local()
		m := orderclose.Message{Value: fmt.Appendf(nil, `{"probe":%d}`, sent.UnixMilli())}
		at, failed := cluster.Append(ctx, topic, 0, []orderclose.Message{m})
		answered := c.local()
		if failed != nil {
			err = failed
			continue
		}
		if at.IsZero() {
			continue
		}
		if trip := answered.Sub(sent); trip < best {
			best, offset, ok = trip, offsetOf(sent, answered, at), true
		}
	}
	if ok {
		err = nil
	}
	return offset, ok, err
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
	if offset, ok, err = c.sample(ctx, cluster, topic); ok {
		c.offset.Store(int64(offset))
	}
	return offset, ok, err
}
