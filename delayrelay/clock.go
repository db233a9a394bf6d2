package delayrelay

import "time"

// clockStep is how far Options.Now must go back in one turn to count as a step. A new
// measurement may differ from the last by the duration of a request.
const clockStep = 100 * time.Millisecond

// clock holds what a loop knows about three clocks: Options.Now, the brokers' clock, and the
// clock of the broker that leads the partition. The leader's clock sets the append times.
type clock struct {
	now    time.Time     // Options.Now at the last turn
	at     time.Time     // the same moment by the monotonic clock
	ahead  time.Duration // how far Options.Now is ahead of the brokers' clock
	leader time.Duration // how far the leader's clock is ahead of the brokers' clock
}

// advance returns how far Options.Now went back since the last turn, or 0 if that
// is less than clockStep.
func (c *clock) advance(now, at time.Time) (back time.Duration) {
	if !c.at.IsZero() {
		back = at.Sub(c.at) - now.Sub(c.now)
	}
	c.now, c.at = now, at
	if back < clockStep {
		return 0
	}
	return back
}

// appended converts the append time of a record of this partition to Options.Now. Both are Unix
// milliseconds.
func (c *clock) appended(at int64) int64 { return at + (c.ahead - c.leader).Milliseconds() }

// observeLeader notes that the leader appended a record at the given time of its own
// clock, and that this happened between sent and answered by the brokers' clock. It keeps
// the smallest difference that explains the times.
func (c *clock) observeLeader(at, sent, answered time.Time) {
	switch {
	case at.After(answered):
		c.leader = at.Sub(answered)
	case at.Before(sent.Truncate(time.Millisecond)): // append times are whole milliseconds
		c.leader = at.Sub(sent)
	default:
		c.leader = 0
	}
}

// handleClockStep corrects the times in memory when Options.Now went back: a broker's or the
// database's clock was set.
// Afterwards no partition is read later, and no record stays longer, than if the clock
// had been right when the record was read. A step forward needs no correction: every time
// comes sooner.
func (h *handler) handleClockStep() {
	now := h.o.Now()
	h.clock.ahead = now.Sub(h.o.Brokers())
	back := h.clock.advance(now, time.Now())
	if back == 0 {
		return
	}
	h.loop.Logger.Warn("the clock of the brokers or of the database went back", "by", back)
	h.clock.leader = 0 // unknown: the step may be of any broker
	h.reading.on, h.reading.look = h.reading.on.Add(-back), h.reading.look.Add(-back)
	h.window.capRelease(now.Add(h.bucket.Length).UnixMilli())
}
