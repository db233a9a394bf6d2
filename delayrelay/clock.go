package delayrelay

import (
	"time"

	"orderclose"
)

// clockStep is by how much the brokers' clock must go back in one turn before the loop
// takes it for a step: a new measurement may differ from the last one by the time that a
// request takes.
const clockStep = 100 * time.Millisecond

// clock is what a loop knows of the two clocks that its times are taken from: the brokers'
// clock as Options.Now tells it, and the clock of the broker that leads the partition,
// which sets the append times.
type clock struct {
	now    time.Time     // the brokers' time at the last turn
	at     time.Time     // the same moment by the monotonic clock
	leader time.Duration // by how much the leader's clock is ahead of the brokers' clock
}

// turn returns by how much the brokers' clock went back since the last turn; 0 if it did
// not.
func (c *clock) turn(now, at time.Time) (back time.Duration) {
	if !c.at.IsZero() {
		back = at.Sub(c.at) - now.Sub(c.now)
	}
	c.now, c.at = now, at
	if back < clockStep {
		return 0
	}
	return back
}

// appended is the append time of a record of this partition by the brokers' clock, in
// unix milliseconds.
func (c *clock) appended(r orderclose.RawRecord) int64 {
	return r.Appended - c.leader.Milliseconds()
}

// tellLeader notes that the leader appended at the given time of its own clock, some time
// between sent and answered by the brokers' clock. The least difference that explains it
// counts.
func (c *clock) tellLeader(at, sent, answered time.Time) {
	switch {
	case at.After(answered):
		c.leader = at.Sub(answered)
	case at.Before(sent.Truncate(time.Millisecond)): // append times are whole milliseconds
		c.leader = at.Sub(sent)
	default:
		c.leader = 0
	}
}

// followClock keeps the times in memory right when the brokers' clock is set back. No
// partition is read later, and no record stays longer, than if the clock had been right
// when it was read. A clock that is set forward needs nothing: every time comes sooner.
func (l *loop) followClock() {
	now := l.Now()
	back := l.clock.turn(now, time.Now())
	if back == 0 {
		return
	}
	l.logger.Warn("the brokers' clock went back", "by", back)
	l.clock.leader = 0 // whose clock went back is not known here
	l.readOn = l.readOn.Add(-back)
	l.window.limit(now.Add(l.bucket.Length).UnixMilli())
}
