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
	// newsTime is how long a turn asks for news at most. olderTime is when it asks for no older orders any more, and retryTime is how long it asks
	// for orders whose rest has ended at least.
	newsTime  = turnTime / 2
	olderTime = turnTime / 10 * 9
	retryTime = turnTime / 10
	// clockError is by how much the estimate of the database's clock may be wrong. Beyond it the news are read again.
	clockError = time.Second
)

// turn is one turn of the loop.
type turn struct {
	*loop
	began  time.Time // by the monotonic clock
	now    time.Time // by the database's clock, at the begin
	cutoff time.Time // orders due at or before it are overdue
	paused map[string]bool
	counts overdue.Counts
	fails  []Failure
	left   bool // news or older orders were not asked for lack of time
	ended  bool // the store gives no verdict: nothing more is asked

	hourErr error // why the row of the period cannot be read
}

func (l *loop) newTurn() *turn { return &turn{loop: l, began: time.Now()} }

// before reports whether less than d of the turn has passed. A pass by hand has no limit.
func (t *turn) before(d time.Duration) bool {
	return !t.ended && (t.hand != nil || time.Since(t.began) < d)
}

// run reads what is overdue, and asks for it: first the news, then older orders, then those whose rest has ended. So what cannot be
// closed keeps nothing new waiting.
func (t *turn) run(ctx context.Context) error {
	found, err := t.begin(ctx)
	if err == nil {
		err = t.askNews(ctx, found)
	}
	if err == nil && !t.ended {
		err = t.askOlder(ctx)
	}
	if err == nil && !t.ended {
		err = t.askRested(ctx)
	}
	if err != nil && !errors.Is(err, orderclose.ErrPaused) {
		t.broken = true
	}
	return err
}

// begin reads the clock, the pauses and the first news.
func (t *turn) begin(ctx context.Context) (found overdue.Found, err error) {
	if t.clock.now.IsZero() {
		now, err := t.calls.Now(ctx)
		if err != nil {
			return found, fmt.Errorf("read the database clock: %w", err)
		}
		t.clock = databaseClock{now, time.Now()}
	}
	w := t.newsWindow(t.Compensator.cutoff(t.clock.estimate()))
	b, err := t.calls.BeginTurn(ctx, w)
	if errors.Is(err, overdue.ErrSlow) {
		t.news.slow(w)
		w.After = orderclose.Order{Due: w.To} // clock and pauses alone
		b, err = t.calls.BeginTurn(ctx, w)
	}
	if err != nil {
		return found, fmt.Errorf("read the clock, pauses and news: %w", err)
	}
	if t.broken {
		t.broken, t.failing = false, b.Now
	}
	before, then := t.loop.pauses, t.clock.now
	t.clock, t.now, t.cutoff = databaseClock{b.Now, time.Now()}, b.Now, t.Compensator.cutoff(b.Now)
	t.loop.pauses, t.paused = b.Pauses, pausedCategories(b.Pauses, b.Now)
	pause, all := pausedAll(b.Pauses, b.Now)
	if pauseEnded(before, then, t.paused, all) {
		t.pass.again = true
	}
	if t.hand == nil {
		t.hourErr = t.hour.begins(ctx, b.Now) // orders are closed nevertheless
	}
	if all {
		t.pass.skip(t.now, t.cutoff)
		t.newsUpTo = t.cutoff
		return found, pause.Err()
	}
	if right := t.newsWindow(t.cutoff); right.After.Due.Before(w.After.Due) || t.cutoff.Sub(w.To) > clockError {
		return t.readNews(ctx, right)
	}
	b.Orders = slices.DeleteFunc(b.Orders, func(o orderclose.Order) bool { return o.Due.After(t.cutoff) })
	return b.Found, nil
}

// read reads a window, and again with half of its time while the server finds it too long. It returns the window that it has read.
func (t *turn) read(ctx context.Context, r *reads, w overdue.Window) (found overdue.Found, covers overdue.Window, err error) {
	for {
		began := time.Now()
		found, err = t.calls.ReadOverdue(ctx, w)
		if r != &t.news {
			t.pass.reading += time.Since(began)
		}
		if !errors.Is(err, overdue.ErrSlow) {
			r.quick()
			return found, w, err
		}
		r.slow(w)
		if !t.before(olderTime) {
			return overdue.Found{Reached: w.After}, w, nil
		}
		w = r.shorter(w)
	}
}

// askOlder asks for older orders that were never tried, the oldest first, from the position of the pass.
func (t *turn) askOlder(ctx context.Context) error {
	if t.pass.begins(time.Now(), t.hour.begin) {
		t.pass = beginPass(t.pass, t.now, t.cutoff, t.skipped)
		t.skipped = time.Time{}
	}
	for t.pass.running && t.before(olderTime) {
		r := &t.older
		if isOld(t.pass.position, t.pass.end) {
			r = &t.old
		}
		found, w, err := t.read(ctx, r, r.window(t.pass.position, t.pass.end))
		if err != nil {
			return fmt.Errorf("read overdue orders after %q: %w", w.After.ID, err)
		}
		fresh := t.untried(found.Orders, true)
		if t.hand != nil {
			t.foundByHand(found.Orders)
			t.progressByHand()
		}
		n, err := t.ask(ctx, kindOlder, fresh, olderTime)
		if err != nil || n < len(fresh) {
			if n < len(fresh) {
				t.left = true
				t.pass.stopAt(found.Orders, fresh[n])
			}
			return err
		}
		if t.pass.goOn(found, w.To); !t.pass.running {
			t.metrics.passed(t.pass)
		}
	}
	t.left = t.left || t.pass.running
	return nil
}

// askRested asks for the orders whose rest has ended, in the order of the ends, for what is left of the turn and retryTime at least.
func (t *turn) askRested(ctx context.Context) error {
	until := max(turnTime, time.Since(t.began)+retryTime) //mutant:no-time-for-retries
	for t.before(until) {
		orders := t.rests.ended(time.Now(), pagesAtOnce*t.pages.size(kindRested), t.paused)
		if len(orders) == 0 {
			return nil
		}
		n, err := t.ask(ctx, kindRested, orders, until)
		t.rests.putBack(orders[n:])
		if err != nil || n < len(orders) {
			return err
		}
	}
	return nil
}

// untried returns the orders that are not paused and were never tried. While too many rest, each older order has its turn in one pass of five minutes.
func (t *turn) untried(orders []orderclose.Order, older bool) []orderclose.Order {
	now, full := time.Now(), older && t.rests.full()
	var all []orderclose.Order
	for _, o := range orders {
		if !t.paused[o.Category] && !t.rests.rests(o.ID, now) && (!full || t.pass.hasTurn(o.ID)) { //mutant:rests-ignored
			all = append(all, o)
		}
	}
	return all
}

// ask asks for orders in pages, two at once, and begins no page after the time until of the turn. It returns how many orders it has asked for, from
// the first one.
func (t *turn) ask(ctx context.Context, k kind, orders []orderclose.Order, until time.Duration) (asked int, err error) {
	if t.hand != nil {
		k, until = kindHand, 24*time.Hour
		defer t.progressByHand()
		if t.hand.DryRun {
			return len(orders), nil
		}
	}
	for asked < len(orders) && t.before(until) && ctx.Err() == nil {
		pages := t.pages.next(k, orders[asked:])
		if !t.pages.wait(ctx, pages, until-time.Since(t.began)) {
			break
		}
		for _, r := range t.pages.close(ctx, k, pages) {
			asked += len(r.orders)
			err = cmp.Or(err, t.settle(ctx, k, r))
		}
		if err != nil {
			return asked, err
		}
	}
	return asked, ctx.Err()
}

// settle notes the outcomes of a page. If the store gives a verdict on none of its orders, another order shows whether the store works.
func (t *turn) settle(ctx context.Context, k kind, r result) error {
	unasked := func(orders []orderclose.Order) {
		if t.rests.putBack(orders); k != kindRested {
			t.skip(orders)
		}
	}
	if errors.Is(r.err, orderclose.ErrPaused) || ctx.Err() != nil {
		t.ended = true
		unasked(r.orders)
		return r.err
	}
	silent := !slices.ContainsFunc(r.outcomes, func(o orderclose.Outcome) bool { return o.Verdict != "" })
	if silent && !t.othersAnswer(ctx, r) { //mutant:rest-without-proof
		t.ended = true
		t.pages.single()
		unasked(r.orders)
		return fmt.Errorf("the store gives no verdict: %w", r.err)
	}
	for i, o := range r.orders {
		outcome := r.outcomes[i]
		if outcome.Verdict == "" && (silent || t.hand != nil) {
			outcome = orderclose.Outcome{OrderID: o.ID, Verdict: orderclose.Failed, Err: r.err}
		}
		if outcome.Verdict == "" { // it was not reached
			unasked(r.orders[i : i+1])
			continue
		}
		t.decided(o, outcome)
	}
	return nil
}

// decided notes the verdict on one order.
func (t *turn) decided(o orderclose.Order, outcome orderclose.Outcome) {
	t.metrics.Verdict(outcome.Verdict)
	if t.hand != nil {
		t.hand.count(outcome)
	}
	before := t.rests.byID[o.ID]
	f := t.rests.tried(o, outcome, time.Now(), t.now)
	switch outcome.Verdict {
	case orderclose.Closed:
		t.metrics.Lateness(t.o.Logger, o.Category, "", outcome)
		t.counts.Add(t.explains(o, before != nil))
	case orderclose.Failed, orderclose.NotFound, orderclose.Contended, orderclose.PaymentPending:
		if before == nil {
			t.counts.NotClosed++
			t.note(f, outcome)
		}
	}
}

// note logs the failure of an order, and keeps it for the record of the hour.
func (t *turn) note(f Failure, o orderclose.Outcome) {
	if f.Error == "" || o.Verdict == orderclose.PaymentPending {
		return
	}
	t.fails = append(t.fails[:min(len(t.fails), maxFailures-1)], f)
	if t.logged.first(f, time.Now()) { //mutant:failure-named-always
		t.o.Logger.Warn("order not closed", "order", f.OrderID, "cause", f.Cause, "detail", f.Error)
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
