// Package clock knows the time by which orders are due: that of the database, or of the brokers for a process without a database.
//
// Make a Clock with New, and ask it for the time. A process that releases or schedules records learns the other clock by Keep, which asks
// the database until its context ends, or without a database by LearnFromAck, from the answers of brokers to what it appends. The time is that of
// this machine's monotonic clock plus the last offset, so nothing happens early when somebody sets the clock of the machine. Before the
// first measurement it is the time of this machine.
//
// Skews (skew.go) finds those who create orders by a wrong clock.
//
// A close compares the database's clock in its own transaction. So a wrong offset makes no order early: a closer sends early records
// back, and the compensator closes the orders of records that are late.
package clock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// measureEvery is the time between two measurements. A clock that is synchronised at all drifts by far less than a millisecond
	// in between.
	measureEvery = 30 * time.Second
	// firstEvery is the time between two tries until the first has succeeded.
	firstEvery = time.Second
	// measureTimeout bounds one measurement.
	measureTimeout = 10 * time.Second
	// questions is how often a measurement asks, until an answer took less than quickAnswer. The fastest answer counts.
	questions   = 3
	quickAnswer = 10 * time.Millisecond
	// keepBroker is how long what the answers of a broker say of its clock counts. A clock that is synchronised at all drifts by less than
	// 60 ms in that time.
	keepBroker = 10 * time.Minute
)

// Clock is the time by which orders are due. Make it with New. It is safe for concurrent use.
type Clock struct {
	now    func() time.Time
	began  time.Time
	offset atomic.Int64 // of the other clock from steady, a time.Duration

	mu      sync.Mutex
	brokers map[string]broker // that LearnFromAck knows, by address
}

// broker is what the answers of a broker say of its clock.
type broker struct {
	bounds      bounds
	began, last time.Time // the first and the last of these answers, by steady
}

// New returns a Clock that has measured nothing. now is the clock of this machine; nil: time.Now.
func New(now func() time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now, began: now(), brokers: map[string]broker{}}
}

// Now returns the time of this machine. It measures how long something waits in memory.
func (c *Clock) Now() time.Time { return c.now() }

// Time returns the time by which orders are due.
func (c *Clock) Time() time.Time { return c.steady().Add(time.Duration(c.offset.Load())) }

// steady returns the time of this machine as if nobody had set its clock since New.
func (c *Clock) steady() time.Time {
	return c.began.Round(0).Add(c.now().Sub(c.began))
}

// Keep measures at once, and then every 30 s, until ctx ends. ask returns the time of the other clock. measured is called with each
// offset of that clock from the clock of this machine. After a measurement without an answer the last offset stays.
func (c *Clock) Keep(ctx context.Context, ask func(context.Context) (time.Time, error), measured func(offset time.Duration), logger *slog.Logger) {
	began, pause := time.Now(), firstEvery
	for ctx.Err() == nil {
		switch offset, err := measure(ctx, c.steady, ask); {
		case err == nil:
			c.offset.Store(int64(offset))
			measured(offset + c.steady().Sub(c.now().Round(0)))
			pause = measureEvery
		case ctx.Err() == nil && (pause == measureEvery || time.Since(began) >= measureEvery): // no warning while servers start
			logger.Warn("measuring the clock by which orders are due failed, will retry", "err", err)
			pause = measureEvery
		}
		retry.Sleep(ctx, pause)
	}
}

// Offset returns by how much another clock, such as the database's, is ahead of that of this machine, as Keep measures it.
func Offset(ctx context.Context, ask func(context.Context) (time.Time, error)) (time.Duration, error) {
	return measure(ctx, time.Now, ask)
}

// LearnFromAck learns the clock of a broker that has just acknowledged an append. at is the time of the append by the broker's clock, and took is how
// long the request took.
// Each answer bounds the offset of that clock from both sides. The least of all brokers counts.
func (c *Clock) LearnFromAck(address string, at time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.steady()
	heard := broker{bounds: boundsOf(now.Add(-took), now, at), began: now, last: now}
	if known, is := c.brokers[address]; is && now.Sub(known.began) < keepBroker {
		if both := known.bounds.and(heard.bounds); both.least <= both.most { // otherwise somebody has set one of the clocks
			heard.bounds, heard.began = both, known.began
		}
	}
	c.brokers[address] = heard
	least := heard.bounds.believed()
	for other, known := range c.brokers {
		if now.Sub(known.last) >= keepBroker {
			delete(c.brokers, other)
			continue
		}
		least = min(least, known.bounds.believed())
	}
	c.offset.Store(int64(least))
}

// Ahead returns by how much the other clock is ahead of that of this machine; 0 before the first measurement.
func (c *Clock) Ahead() time.Duration { return c.Time().Sub(c.now().Round(0)) }

// measure returns by how much the clock that ask reads, in milliseconds or finer, is ahead of now, by the fastest answer: 0 if that
// explains it, and else the least possible offset. A clock that is believed to be slower than it is makes nothing early.
func measure(ctx context.Context, now func() time.Time, ask func(context.Context) (time.Time, error)) (offset time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	fastest := time.Duration(-1)
	for n := 0; n < questions && (fastest < 0 || fastest >= quickAnswer); n++ {
		sent := now()
		at, failed := ask(ctx)
		answered := now()
		if failed != nil {
			err = failed
			continue
		}
		if trip := answered.Sub(sent); fastest < 0 || trip < fastest {
			fastest, offset = trip, boundsOf(sent, answered, at).believed()
		}
	}
	if fastest >= 0 {
		err = nil
	}
	return offset, err
}

// bounds are the least and the largest offset that a clock can have.
type bounds struct{ least, most time.Duration }

// boundsOf returns the bounds of the offset of a clock. The question was sent and answered at the given times. Between them the clock
// showed at, cut to whole milliseconds.
func boundsOf(sent, answered, at time.Time) bounds {
	return bounds{at.Sub(answered), at.Add(time.Millisecond).Sub(sent)}
}

// and returns the bounds that hold if both do.
func (b bounds) and(other bounds) bounds {
	return bounds{max(b.least, other.least), min(b.most, other.most)}
}

// believed returns the offset that counts: 0 if the bounds allow it, and else the least one.
func (b bounds) believed() time.Duration {
	if b.least <= 0 && b.most >= 0 {
		return 0
	}
	return b.least //mutant:earliest-offset-believed
}
