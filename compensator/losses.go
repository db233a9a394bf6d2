package compensator

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// gatherTime is how long further losses are awaited after the first. A process
	// that loses one partition often loses more, and one sweep is enough for all.
	gatherTime = 10 * time.Second
	// clockSkewTolerance is the largest expected difference between the clock that wrote
	// created_at and the brokers' clock. A larger difference raises an alert.
	clockSkewTolerance = time.Second
)

// notice is the notice of one loss.
type notice struct {
	wire.Lost
	reportedAt time.Time // when it was appended, by the brokers' clock; zero if unknown
}

// empty reports that the log had no records. There is one such notice for each
// partition at a first start.
func (n notice) empty() bool { return n.Last < n.First }

// losses sums up the losses that have to be dealt with. Its methods are pure.
type losses struct {
	count      int
	empty      int           // how many are losses of empty logs
	since      time.Time     // when the first notice was read
	dueWithin  time.Duration // how far ahead the orders may be due
	reportedAt time.Time     // when the last loss was reported, by the brokers' clock; zero if unknown for any loss
}

// with returns the losses and one more, whose orders may be due as far ahead as dueWithin.
func (l losses) with(n notice, dueWithin time.Duration, now time.Time) losses {
	switch {
	case l.count == 0:
		l.since, l.reportedAt = now, n.reportedAt
	case n.reportedAt.IsZero() || l.reportedAt.IsZero():
		l.reportedAt = time.Time{}
	case n.reportedAt.After(l.reportedAt):
		l.reportedAt = n.reportedAt
	}
	l.count++
	if n.empty() {
		l.empty++
	}
	l.dueWithin = max(l.dueWithin, dueWithin)
	return l
}

// readyAt returns when the losses are gathered and can be dealt with.
func (l losses) readyAt() time.Time { return l.since.Add(gatherTime) }

// unaffected reports that the order's record cannot have been lost: the order was created
// after the last loss was reported. A creation time after now, by the database's
// clock, comes from a clock that is ahead. Such an order may have been created much
// earlier, so it counts as affected.
func (l losses) unaffected(o orderclose.Order, now time.Time) bool {
	if l.reportedAt.IsZero() || o.CreatedAt.IsZero() {
		return false
	}
	return o.CreatedAt.After(l.reportedAt.Add(clockSkewTolerance)) && !o.CreatedAt.After(now.Add(clockSkewTolerance))
}
