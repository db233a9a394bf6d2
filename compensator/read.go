package compensator

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

// oldReads is the age beyond which orders are a read of their own: few orders are so old, and their part of the index may be cold.
const oldReads = 30 * 24 * time.Hour

// reads decides which due times a read covers. The server ends a read that takes too long; then the next one covers half of its time, and
// after each one that succeeds twice as much.
type reads struct {
	span time.Duration // at most; 0: no limit
}

// window returns the read of the due times behind an order, up to a time.
func (r *reads) window(after orderclose.Order, to time.Time) overdue.Window {
	end := to
	if isOld(after, to) {
		end = to.Add(-oldReads)
	}
	if r.span > 0 && end.Sub(earliest(after.Due)) > r.span {
		end = earliest(after.Due).Add(r.span)
	}
	return overdue.Window{After: after, To: end}
}

// back returns the read of the due times from a time to another, the newest first.
func (r *reads) back(from, to time.Time) overdue.Window {
	if r.span > 0 && to.Sub(from) > r.span {
		from = to.Add(-r.span)
	}
	return overdue.Window{After: orderclose.Order{Due: from}, To: to, Newest: true}
}

// slow notes that a read of the window took too long.
func (r *reads) slow(w overdue.Window) { r.span = max(length(w)/2, time.Millisecond) }

// quick notes that a read succeeded.
func (r *reads) quick() {
	if r.span *= 2; r.span > oldReads {
		r.span = 0
	}
}

// isOld reports whether a read behind an order covers old orders.
func isOld(after orderclose.Order, to time.Time) bool { return after.Due.Before(to.Add(-oldReads)) }

// shorter returns the window cut to what the next read may cover.
func (r *reads) shorter(w overdue.Window) overdue.Window {
	if w.Newest {
		next := r.back(w.After.Due, w.To)
		next.Before = w.Before
		return next
	}
	w.To = earliest(w.After.Due).Add(r.span)
	return w
}

func length(w overdue.Window) time.Duration { return w.To.Sub(earliest(w.After.Due)) }

// earliest returns a time from which the length of a window can be counted: the zero time is too far away.
func earliest(due time.Time) time.Time { return maxTime(due, time.Unix(0, 0)) }

// pager is the Reader of a Store without one: a read is one page of Overdue, the oldest first.
type pager struct {
	calls *calls
	limit int
}

// BeginTurn implements Reader.
func (p pager) BeginTurn(ctx context.Context, w overdue.Window) (b overdue.Begin, err error) {
	if b.Now, err = p.calls.Now(ctx); err == nil {
		b.Found, err = p.ReadOverdue(ctx, w)
	}
	return b, err
}

// ReadOverdue implements Reader. It reads forward, whatever w says.
func (p pager) ReadOverdue(ctx context.Context, w overdue.Window) (found overdue.Found, err error) {
	page, err := p.calls.Overdue(ctx, w.To, w.After, p.limit)
	if err != nil {
		return found, err
	}
	found = overdue.Found{Orders: page, All: len(page) == 0} // a page may be short and not the last one
	if len(page) > 0 {
		found.Reached = page[len(page)-1]
	}
	switch {
	case len(page) > p.limit:
		err = fmt.Errorf("the store's method Overdue returned %d orders, and the limit is %d", len(page), p.limit)
	case len(page) > 0 && found.Reached.ID == w.After.ID && found.Reached.Due.Equal(w.After.Due): //mutant:same-page-forever
		err = fmt.Errorf("the store's method Overdue returned order %q again: a page must begin after the given order", w.After.ID)
	}
	return found, err
}
