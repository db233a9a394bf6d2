package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

const (
	// newsTime is how long a turn asks for news at most. olderTime is when it asks for no older orders any more, and olderShare how long it asks
	// for them at least.
	newsTime   = turnTime / 2
	olderTime  = turnTime / 10 * 9
	olderShare = turnTime / 5 * 2
	// newsBack is by how much the news of a turn reach behind the cutoff of the last one: transactions commit out of order.
	newsBack = 15 * time.Second
	// newHolderBack is how far the first news of a process reach back: the holder before may have asked for none since a turn before it was killed.
	newHolderBack = time.Minute
)

// turn is what the loop knows in one turn only.
type turn struct {
	began  time.Time // by the monotonic clock
	now    time.Time // by the database's clock
	cutoff time.Time // orders due at or before it are overdue
	quiet  bool      // nothing is overdue
	left   bool      // news or older orders were not asked for lack of time
	closed int       // orders
	unread error     // why no news could be read in time; nil: they were
}

// before reports whether less than d of the turn has passed.
func (l *loop) before(d time.Duration) bool { return time.Since(l.began) < d }

// run reads what is overdue, and asks for it: first the news, then older orders, then those whose rest has ended. So what cannot be
// closed keeps nothing new waiting.
func (l *loop) run(ctx context.Context) error {
	err := l.begin(ctx)
	if err == nil {
		l.compareClocks(ctx)
		l.startSlowLane(ctx)
	}
	if err == nil && !l.quiet {
		err = l.closeRecent(ctx)
	}
	if err == nil && !l.quiet {
		err = l.closeOlder(ctx)
	}
	paused := errors.Is(err, orderclose.ErrPaused)
	if paused || l.quiet { // nothing waits for the loop, and a pass has ended
		l.pass.again = l.pass.again || paused
		l.pass.skip(l.now, l.cutoff)
		l.newsUpTo, l.skipped = l.cutoff, time.Time{}
	}
	l.broken = l.broken || err != nil && (!paused || len(l.paused) == 0) // in a pause that only the Store knows, no order counts as missed
	return err
}

// begin reads the clock and the pauses, and whether anything is overdue. If nothing is, no read is needed.
func (l *loop) begin(ctx context.Context) error {
	var b overdue.Begin
	at := time.Now().Add(l.ahead + Grace) // after the cutoff. If a clock was set, the next pass finds the orders between
	err := l.calls.call(ctx, "the read of the clock and the pauses", func(ctx context.Context) (err error) {
		b, err = l.o.Reader.BeginTurn(ctx, at)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the clock and the pauses: %w", err)
	}
	if l.broken {
		l.broken, l.recovered = false, b.Now
	}
	on := pausesAt(b.Pauses, b.Now)
	l.pass.again = l.pass.again || pauseEnded(l.paused, on)
	l.pauses, l.paused, l.hour = b.Pauses, on, l.hour.at(b.Now, l.o.Period)
	l.now, l.cutoff, l.ahead = b.Now, l.latestDue(b.Now), b.Now.Sub(time.Now().Round(0))
	l.quiet = b.Quiet
	if pause, all := on[""]; all {
		return pause.Err()
	}
	return nil
}

// latestDue returns the latest due time of an order that is overdue.
func (l *loop) latestDue(now time.Time) time.Time {
	if l.o.Alone {
		return now
	}
	return now.Add(-Grace) //mutant:grace-ignored
}

// newsSince returns from when on orders are news: since the lesser of this cutoff and that of the last turn that read news.
func newsSince(last, cutoff time.Time) time.Time {
	switch {
	case last.IsZero():
		return cutoff.Add(-newHolderBack) //mutant:new-holder-looks-back
	case last.Before(cutoff):
		return last.Add(-newsBack)
	}
	return cutoff.Add(-newsBack)
}

// closeRecent asks for the orders that came due since the last turn, the newest first, in half of the turn at most. What it leaves is older.
func (l *loop) closeRecent(ctx context.Context) error {
	since := newsSince(l.newsUpTo, l.cutoff)
	_, forward := l.o.Reader.(pager)
	w := overdue.Window{After: orderclose.Order{Due: since}, To: l.cutoff, Newest: !forward}
	for more := true; more; {
		var found, left []orderclose.Order
		var err error
		if found, w, more, err = l.read(ctx, &l.news, w, newsTime); err != nil {
			l.leave(since)
			if !errors.Is(err, overdue.ErrSlow) {
				return err
			}
			if !l.newsUpTo.Equal(l.cutoff) { // the next turn reads the same news again
				l.unread = err
			}
			return nil
		}
		l.newsUpTo = l.cutoff
		left, err = l.ask(ctx, l.untried(found, false), newsTime)
		for _, o := range left {
			l.leave(o.Due)
		}
		if err != nil {
			return err
		}
		if more && !l.before(newsTime) {
			l.leave(since)
			return nil
		}
	}
	return nil
}

// leave notes the due time of news that are left to the next pass.
func (l *loop) leave(due time.Time) {
	l.left = true
	if l.skipped.IsZero() || due.Before(l.skipped) {
		l.skipped = due
	}
}

// closeOlder asks for older orders that were never tried, the oldest first, from the position of the pass.
func (l *loop) closeOlder(ctx context.Context) error {
	if l.pass.begins(time.Now(), l.cutoff, l.hour.begin, !l.skipped.IsZero()) {
		l.pass, l.skipped = beginPass(l.pass, l.now, l.cutoff, l.skipped), time.Time{}
	}
	until := max(olderTime, time.Since(l.began)+olderShare)
	for l.pass.running && l.before(until) {
		found, position, more, err := l.readPass(ctx, until)
		if err != nil {
			l.left = true
			return notSlow(err)
		}
		left, err := l.ask(ctx, l.untried(found, true), until)
		if len(left) > 0 {
			l.pass.stopAt(found, left[0])
			l.left = true
			return err
		}
		if err != nil {
			return err
		}
		if l.pass.goOn(position, more); !more {
			l.metrics.seconds.Observe(l.pass.ended.Sub(l.pass.began).Seconds())
		}
	}
	l.left = l.left || l.pass.running
	return nil
}

// startSlowLane lets the slow lane take the orders whose rest has ended, also after this turn.
func (l *loop) startSlowLane(ctx context.Context) {
	l.takeNotes(ctx)
	l.lanes.offer(slices.DeleteFunc(l.rests.ended(time.Now()), func(r rested) bool { //mutant:no-retries
		return l.paused.category(r.order) || l.lanes.has(r.order.ID)
	}))
	l.lanes.search.Start(ctx)
}

// takeNotes notes the results of the slow lane.
func (l *loop) takeNotes(ctx context.Context) {
	for _, r := range l.lanes.noted() {
		l.settle(r)
	}
}

// unpaused returns the orders whose category is not paused.
func (l *loop) unpaused(orders []orderclose.Order) []orderclose.Order {
	return slices.DeleteFunc(slices.Clone(orders), l.paused.category)
}

// untried returns the orders that are not paused and do not rest. While too many rest, an older order without a rest has its turn once in five minutes.
func (l *loop) untried(orders []orderclose.Order, older bool) (untried []orderclose.Order) {
	now, full := time.Now(), older && l.rests.full()
	for _, o := range l.unpaused(orders) {
		if !l.rests.has(o.ID, now) && !l.lanes.has(o.ID) && (!full || l.pass.hasTurn(o.ID)) { //mutant:rests-ignored
			untried = append(untried, o)
		}
	}
	return untried
}

// ask asks for orders in pages, and begins no page after the time until of the turn. It returns the orders that it has not asked for, in their order.
func (l *loop) ask(ctx context.Context, orders []orderclose.Order, until time.Duration) (left []orderclose.Order, err error) {
	for len(orders) > 0 && err == nil && l.before(until) {
		results := l.lanes.close(ctx, orders, l.began.Add(until))
		if len(results) == 0 {
			break
		}
		for _, r := range results {
			orders = orders[len(r.orders):]
			if r.err != nil && (ctx.Err() != nil || errors.Is(r.err, orderclose.ErrNoOrderAtFault)) {
				left, err = append(left, r.orders...), cmp.Or(err, r.err)
			} else if r.err == nil || len(r.orders) == 1 || !l.lanes.give(r.orders) {
				l.settle(r)
			}
		}
		l.lanes.search.Start(ctx)
	}
	return append(left, orders...), cmp.Or(err, ctx.Err())
}

// settle notes the result of a call.
func (l *loop) settle(r tried) {
	l.lastErr = cmp.Or(r.err, l.lastErr)
	for i, o := range r.orders {
		if l.found != nil {
			l.found(o, r.outcome(i))
		} else if r.err != nil {
			l.decided(o, r.outcome(i), l.rests.failedWith(o, len(r.orders) == 1, l.lanes.succeeded(), time.Now()))
		} else {
			l.decided(o, r.outcome(i), l.rests.tried(o, r.outcomes[i].Verdict, time.Now()))
		}
	}
}

// decided notes the verdict on one order. before says that the order was tried before.
func (l *loop) decided(o orderclose.Order, outcome orderclose.Outcome, before bool) {
	l.observe(o, outcome)
	switch outcome.Verdict {
	case orderclose.Closed:
		l.closed++
		l.count(l.explains(o, before))
	case orderclose.Failed, orderclose.NotFound, orderclose.Contended, orderclose.PaymentPending:
		if !before {
			l.count(overdue.Counts{NotClosed: 1})
			l.note(outcome)
		}
	}
}

// observe counts a verdict, and how late an order was closed.
func (l *loop) observe(o orderclose.Order, outcome orderclose.Outcome) {
	if l.metrics.Verdict(outcome.Verdict); outcome.Verdict == orderclose.Closed {
		l.metrics.Lateness(l.o.Logger, o.Category, "", outcome)
	}
}

// explains returns why the loop, and not the pipeline, has closed an order.
func (l *loop) explains(o orderclose.Order, tried bool) (c overdue.Counts) {
	switch {
	case tried || !o.Due.After(l.recovered):
		c.AfterFailure = 1
	case pauseCovered(l.pauses, o, l.now):
		c.AfterPause = 1
	case !l.o.Alone: // without a pipeline no order was missed
		c.Missed = 1
	}
	return c
}

// note logs the failure of an order, one of each cause an hour.
func (l *loop) note(o orderclose.Outcome) {
	f := failureOf(o)
	if f.Error == "" || o.Verdict == orderclose.PaymentPending {
		return
	}
	if time.Since(l.logged[f.Cause]) >= time.Hour { //mutant:failure-named-always
		l.logged[f.Cause] = time.Now()
		l.o.Logger.Warn("order not closed", "order", f.OrderID, "cause", f.Cause, "detail", f.Error)
	}
}
