package compensator

import (
	"context"
	"errors"
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
	took time.Duration // by all reads that succeeded. One that the server ends may have waited for a lock, which is no load
}

// cut returns the part of a window that the next read covers.
func (r reads) cut(w overdue.Window) overdue.Window {
	switch {
	case r.span == 0 || length(w) <= r.span:
	case w.Newest:
		w.After = orderclose.Order{Due: w.To.Add(-r.span)}
	default:
		w.To = earliest(w.After.Due).Add(r.span)
	}
	return w
}

// slow notes that a read of the window took too long.
func (r *reads) slow(w overdue.Window) { r.span = max(length(w)/2, time.Millisecond) }

// quick notes that a read succeeded, and how long it took.
func (r *reads) quick(took time.Duration) {
	r.took += took
	if r.span *= 2; r.span > oldReads {
		r.span = 0
	}
}

func length(w overdue.Window) time.Duration { return w.To.Sub(earliest(w.After.Due)) }

// earliest returns a time from which the length of a window can be counted: the zero time is too far away.
func earliest(due time.Time) time.Time {
	if begin := time.Unix(0, 0); due.Before(begin) {
		return begin
	}
	return due
}

// behind returns the part of a window that a read of covers, a part of the window, has left. more is false if it has left nothing.
func behind(w, covers overdue.Window, found overdue.Found) (rest overdue.Window, more bool) {
	reached, more := found.Reached, !found.All
	switch {
	case more:
	case w.Newest:
		reached, more = covers.After, covers.After.Due.After(w.After.Due)
	default: // the next read has the orders of this very time again: no id is behind all others
		reached, more = orderclose.Order{Due: covers.To}, covers.To.Before(w.To)
	}
	if w.Newest {
		w.To, w.Before = reached.Due, reached
	} else {
		w.After = reached
	}
	return w, more
}

// read reads a window, or as much of it as the server returns in time. It returns what it has found, and the part of the window that is left; more
// is false if nothing is left. While the server finds a read too long, the next one is shorter, until the given time of the turn. Then the error wraps
// overdue.ErrSlow.
func (l *loop) read(ctx context.Context, r *reads, w overdue.Window, until time.Duration) (
	orders []orderclose.Order, rest overdue.Window, more bool, err error,
) {
	for {
		var found overdue.Found
		covers, began := r.cut(w), time.Now()
		err := l.calls.call(ctx, "the read of overdue orders", func(ctx context.Context) (err error) {
			found, err = l.o.Reader.ReadOverdue(ctx, covers)
			return err
		})
		if err == nil {
			r.quick(time.Since(began))
			rest, more = behind(w, covers, found)
			return found.Orders, rest, more, nil
		}
		slow := errors.Is(err, overdue.ErrSlow)
		if slow {
			r.slow(covers)
		}
		if !slow || !l.before(until) {
			return nil, w, true, fmt.Errorf("read overdue orders up to %v: %w", covers.To, err)
		}
	}
}

// notSlow returns nil for a read that the server has ended, which does not end the turn.
func notSlow(err error) error {
	if errors.Is(err, overdue.ErrSlow) {
		return nil
	}
	return err
}

// pager is the Reader of a Store without one: a read is one page of Overdue, the oldest first.
type pager struct {
	store Store
	limit int
}

// BeginTurn implements Reader.
func (p pager) BeginTurn(ctx context.Context, _ time.Time) (b overdue.Begin, err error) {
	b.Now, err = p.store.Now(ctx)
	return b, err
}

// ReadOverdue implements Reader. It reads forward, whatever w says.
func (p pager) ReadOverdue(ctx context.Context, w overdue.Window) (found overdue.Found, err error) {
	found.Orders, err = p.store.Overdue(ctx, w.To, w.After, p.limit)
	n := len(found.Orders)
	if found.All = n == 0; err != nil || found.All { // a page may be short and not the last one
		return found, err
	}
	found.Reached = found.Orders[n-1]
	if found.Reached.ID == w.After.ID && found.Reached.Due.Equal(w.After.Due) { //mutant:same-page-forever
		return found, fmt.Errorf("the store's method Overdue returned order %q again: a page must begin after the given order", w.After.ID)
	}
	return found, nil
}
