package compensator

import (
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/overdue"
)

const (
	// newestRows is how many unpaid orders a look reads of each half: those that are due, and those that are not.
	newestRows = 1000
	// newestAhead is how far ahead the due times lie at most that a look reads.
	newestAhead = 366 * 24 * time.Hour
	// looksApart is the longest time between two looks of which the second knows which orders are new.
	looksApart = 30 * time.Second
)

// look is what a turn knows of the newest unpaid orders: those with the latest due times.
type look struct {
	at     time.Time       // by the database's clock
	known  map[string]bool // their ids
	halves [2]time.Time    // due times up to which each half was read
}

// compareClocks compares the creation times of orders that are new since the last look with the database's clock. What it cannot read
// now it leaves out: the orders close nevertheless.
func (l *loop) compareClocks(ctx context.Context) {
	if _, is := l.o.Reader.(pager); is || l.o.Skews == nil {
		return
	}
	before, now := l.newest, look{at: l.now, known: map[string]bool{}}
	old := overdue.Window{After: orderclose.Order{Due: l.now.Add(-oldReads)}, To: l.now}
	coming := overdue.Window{After: orderclose.Order{Due: l.now}, To: l.now.Add(newestAhead)}
	for half, w := range []overdue.Window{old, coming} {
		var found overdue.Found
		w.Newest, w.Rows = true, newestRows
		err := l.calls.call(ctx, "the read of the newest orders", func(ctx context.Context) (err error) {
			found, err = l.o.Reader.ReadOverdue(ctx, w)
			return err
		})
		if err != nil {
			return
		}
		if now.halves[half] = found.Reached.Due; found.All {
			now.halves[half] = w.After.Due
		}
		for _, o := range found.Orders {
			now.known[o.ID] = true
			if seen := before.firstSeen(o, now.at); !seen.IsZero() && !before.known[o.ID] {
				l.o.Skews.Compare(clock.AtLoop, o, seen)
			}
		}
	}
	l.newest = now
}

// firstSeen returns by which time of the database's clock a new order was certainly there, or not yet there if its creation time is
// earlier. Zero: the order may be an old one.
func (l look) firstSeen(o orderclose.Order, now time.Time) time.Time {
	switch half := l.halves[1]; {
	case o.CreatedAt.After(now):
		return now
	case l.at.IsZero() || now.Sub(l.at) > looksApart || o.CreatedAt.After(l.at):
		return time.Time{}
	case o.Due.After(l.at) && o.Due.After(half), !o.Due.After(l.at) && o.Due.After(l.halves[0]):
		return l.at
	}
	return time.Time{}
}
