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

// turn is one turn of the loop.
type turn struct {
	*loop
	began  time.Time // by the monotonic clock
	now    time.Time // by the database's clock
	cutoff time.Time // orders due at or before it are overdue
	quiet  bool      // nothing is overdue
	left   bool      // news or older orders were not asked for lack of time
	closed int       // orders
	unread error     // why no news could be read in time; nil: they were
}

func (l *loop) newTurn() *turn { return &turn{loop: l, began: time.Now()} }

// before reports whether less than d of the turn has passed.
func (t *turn) before(d time.Duration) bool { return time.Since(t.began) < d }

// run reads what is overdue, and asks for it: first the news, then older orders, then those whose rest has ended. So what cannot be
// closed keeps nothing new waiting.
func (t *turn) run(ctx context.Context) error {
	err := t.begin(ctx)
	if err == nil {
		t.compareClocks(ctx)
		t.startSlowLane(ctx)
	}
	if err == nil && !t.quiet {
		err = t.closeRecent(ctx)
	}
	if err == nil && !t.quiet {
		err = t.closeOlder(ctx)
	}
	paused := errors.Is(err, orderclose.ErrPaused)
	if paused || t.quiet { // nothing waits for the loop, and a pass has ended
		t.pass.again = t.pass.again || paused
		t.pass.skip(t.now, t.cutoff)
		t.newsUpTo, t.skipped = t.cutoff, time.Time{}
	}
	t.broken = t.broken || err != nil && (!paused || len(t.paused) == 0) // in a pause that only the Store knows, no order counts as missed
	return err
}

// begin reads the clock and the pauses, and whether anything is overdue. If nothing is, no read is needed.
func (t *turn) begin(ctx context.Context) error {
	var b overdue.Begin
	at := time.Now().Add(t.ahead + Grace) // after the cutoff. If a clock was set, the next pass finds the orders between
	err := t.calls.call(ctx, "the read of the clock and the pauses", func(ctx context.Context) (err error) {
		b, err = t.o.Reader.BeginTurn(ctx, at)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the clock and the pauses: %w", err)
	}
	if t.broken {
		t.broken, t.recovered = false, b.Now
	}
	on := pausesAt(b.Pauses, b.Now)
	t.pass.again = t.pass.again || pauseEnded(t.paused, on)
	t.pauses, t.paused, t.hour = b.Pauses, on, t.hour.at(b.Now, t.o.Period)
	t.now, t.cutoff, t.ahead = b.Now, t.latestDue(b.Now), b.Now.Sub(time.Now().Round(0))
	t.quiet = b.Quiet
	if pause, all := on[""]; all {
		return pause.Err()
	}
	return nil
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
func (t *turn) closeRecent(ctx context.Context) error {
	since := newsSince(t.newsUpTo, t.cutoff)
	_, forward := t.o.Reader.(pager)
	w := overdue.Window{After: orderclose.Order{Due: since}, To: t.cutoff, Newest: !forward}
	for more := true; more; {
		var found, left []orderclose.Order
		var err error
		if found, w, more, err = t.read(ctx, &t.news, w, newsTime); err != nil {
			t.leave(since)
			if !errors.Is(err, overdue.ErrSlow) {
				return err
			}
			if !t.newsUpTo.Equal(t.cutoff) { // the next turn reads the same news again
				t.unread = err
			}
			return nil
		}
		t.newsUpTo = t.cutoff
		left, err = t.ask(ctx, t.untried(found, false), newsTime)
		for _, o := range left {
			t.leave(o.Due)
		}
		if err != nil {
			return err
		}
		if more && !t.before(newsTime) {
			t.leave(since)
			return nil
		}
	}
	return nil
}

// leave notes the due time of news that are left to the next pass.
func (t *turn) leave(due time.Time) {
	t.left = true
	if t.skipped.IsZero() || due.Before(t.skipped) {
		t.skipped = due
	}
}

// closeOlder asks for older orders that were never tried, the oldest first, from the position of the pass.
func (t *turn) closeOlder(ctx context.Context) error {
	if t.pass.begins(time.Now(), t.cutoff, t.hour.begin, !t.skipped.IsZero()) {
		t.pass, t.skipped = beginPass(t.pass, t.now, t.cutoff, t.skipped), time.Time{}
	}
	until := max(olderTime, time.Since(t.began)+olderShare)
	for t.pass.running && t.before(until) {
		found, position, more, err := t.readPass(ctx, until)
		if err != nil {
			t.left = true
			return notSlow(err)
		}
		left, err := t.ask(ctx, t.untried(found, true), until)
		if len(left) > 0 {
			t.pass.stopAt(found, left[0])
			t.left = true
			return err
		}
		if err != nil {
			return err
		}
		if t.pass.goOn(position, more); !more {
			t.metrics.seconds.Observe(t.pass.ended.Sub(t.pass.began).Seconds())
		}
	}
	t.left = t.left || t.pass.running
	return nil
}

// startSlowLane lets the slow lane take the orders whose rest has ended, also after this turn.
func (t *turn) startSlowLane(ctx context.Context) {
	t.takeNotes(ctx)
	t.lanes.offer(slices.DeleteFunc(t.rests.ended(time.Now()), func(r rested) bool { //mutant:no-retries
		return t.paused.category(r.order) || t.lanes.has(r.order.ID)
	}))
	t.lanes.search.Start(ctx)
}

// takeNotes notes the results of the slow lane.
func (t *turn) takeNotes(ctx context.Context) {
	for _, r := range t.lanes.noted() {
		t.settle(r)
	}
}

// unpaused returns the orders whose category is not paused.
func (t *turn) unpaused(orders []orderclose.Order) []orderclose.Order {
	return slices.DeleteFunc(slices.Clone(orders), t.paused.category)
}

// untried returns the orders that are not paused and do not rest. While too many rest, an older order without a rest has its turn once in five minutes.
func (t *turn) untried(orders []orderclose.Order, older bool) (untried []orderclose.Order) {
	now, full := time.Now(), older && t.rests.full()
	for _, o := range t.unpaused(orders) {
		if !t.rests.has(o.ID, now) && !t.lanes.has(o.ID) && (!full || t.pass.hasTurn(o.ID)) { //mutant:rests-ignored
			untried = append(untried, o)
		}
	}
	return untried
}

// ask asks for orders in pages, and begins no page after the time until of the turn. It returns the orders that it has not asked for, in their order.
func (t *turn) ask(ctx context.Context, orders []orderclose.Order, until time.Duration) (left []orderclose.Order, err error) {
	for len(orders) > 0 && err == nil && t.before(until) {
		results := t.lanes.close(ctx, orders, t.began.Add(until))
		if len(results) == 0 {
			break
		}
		for _, r := range results {
			orders = orders[len(r.orders):]
			if r.err != nil && (ctx.Err() != nil || errors.Is(r.err, orderclose.ErrNoOrderAtFault)) {
				left, err = append(left, r.orders...), cmp.Or(err, r.err)
			} else if r.err == nil || len(r.orders) == 1 || !t.lanes.give(r.orders) {
				t.settle(r)
			}
		}
		t.lanes.search.Start(ctx)
	}
	return append(left, orders...), cmp.Or(err, ctx.Err())
}

// settle notes the result of a call.
func (t *turn) settle(r tried) {
	for i, o := range r.orders {
		if r.err != nil {
			t.failed(o, len(r.orders) == 1, r.err)
		} else {
			t.decided(o, r.outcomes[i])
		}
	}
}

// failed notes that a call with an order failed.
func (t *turn) failed(o orderclose.Order, alone bool, err error) {
	t.lastErr = err
	outcome := failure(o, err)
	t.observe(o, outcome)
	if before := t.rests.failedWith(o, alone, t.lanes.succeeded(), time.Now()); !before {
		t.count(overdue.Counts{NotClosed: 1})
		t.note(outcome)
	}
}

// decided notes the verdict on one order.
func (t *turn) decided(o orderclose.Order, outcome orderclose.Outcome) {
	t.observe(o, outcome)
	before := t.rests.tried(o, outcome.Verdict, time.Now())
	switch outcome.Verdict {
	case orderclose.Closed:
		t.closed++
		t.count(t.explains(o, before))
	case orderclose.Failed, orderclose.NotFound, orderclose.Contended, orderclose.PaymentPending:
		if !before {
			t.count(overdue.Counts{NotClosed: 1})
			t.note(outcome)
		}
	}
}

// observe counts a verdict, and how late an order was closed.
func (t *turn) observe(o orderclose.Order, outcome orderclose.Outcome) {
	if t.metrics.Verdict(outcome.Verdict); outcome.Verdict == orderclose.Closed {
		t.metrics.Lateness(t.o.Logger, o.Category, "", outcome)
	}
}

// explains returns why the loop, and not the pipeline, has closed an order.
func (t *turn) explains(o orderclose.Order, tried bool) (c overdue.Counts) {
	switch {
	case tried || !o.Due.After(t.recovered):
		c.AfterFailure = 1
	case pauseCovered(t.pauses, o, t.now):
		c.AfterPause = 1
	case !t.o.Alone: // without a pipeline no order was missed
		c.Missed = 1
	}
	return c
}

// note logs the failure of an order, one of each cause an hour, and keeps it for the record of the compensation.
func (t *turn) note(o orderclose.Outcome) {
	f := failureOf(o, t.now)
	if f.Error == "" || o.Verdict == orderclose.PaymentPending {
		return
	}
	if len(t.hour.failures) < maxFailures {
		t.hour.failures = append(t.hour.failures, f)
	}
	if time.Since(t.logged[f.Cause]) >= time.Hour { //mutant:failure-named-always
		t.logged[f.Cause] = time.Now()
		t.o.Logger.Warn("order not closed", "order", f.OrderID, "cause", f.Cause, "detail", f.Error)
	}
}
