package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// OverdueGrace is how long an order may be due before it counts as overdue. A busy pipeline closes an order within milliseconds.
	OverdueGrace = 5 * time.Second
	// lookAtRest is the time between two looks for overdue orders, and the longest time of one sweep of a series. lookInterval is the time
	// between two looks of a series, or while the keeper waits for the pipeline.
	lookAtRest   = 15 * time.Second
	lookInterval = 5 * time.Second
	// lookPage is how many orders one read of a look returns at most. lookTimeout limits the reads of one look, which reads no further page
	// after lookInterval.
	lookPage    = 500
	lookTimeout = 30 * time.Second
	// A whole look reads all orders that are overdue. By rule that takes long, because it reads past all orders with longer delays. The next
	// whole look begins wholeShare times as long after it as it took. A look in between begins at the orders that were due lookBack before
	// the last cutoff.
	wholeShare = 10
	lookBack   = 2 * time.Minute
	// seriesRest is how long no order may be overdue until a series of sweeps ends.
	seriesRest = time.Minute
	// sweepTimeout limits one sweep of a series: a store that does not answer must not keep the lock from others.
	sweepTimeout = time.Minute
	// longestWait is how long the keeper leaves overdue orders to a pipeline that is behind. A restart of all relays and closers is shorter.
	longestWait = 2 * time.Minute
	// shareBesideClosers is the part of Options.Rate that a series uses while closers work off a backlog.
	shareBesideClosers = 10
)

// Pause is a pause of the closes by one path.
type Pause = wire.Pause

// Backlog says how far a pipeline is. The zero value says that it has no backlog, or that Kafka does not answer.
type Backlog struct {
	// Late says that a relay, closer, dispatcher or room should have handled a record or row OverdueGrace ago.
	Late bool
	// Settled rises while closers settle records.
	Settled int64
}

// lookout looks for overdue orders, and sweeps them. Whatever lost the record of an order, the order is overdue. It belongs to one
// goroutine, and uses resting while it has busy.
type lookout struct {
	*Compensator
	keeper *keeper

	// A whole look begins behind after: all orders up to it are explained. The last page that was read is not among them, because
	// orders may be added to it.
	after  orderclose.Order
	whole  time.Time // when a whole look is due
	cutoff time.Time // of the last look that read up to it, or of the first look; by the database's clock
	open   time.Time // the earliest due time of the orders that a look has found since, or whose rest has ended; zero: there are none
	looked time.Time // the last look, by the database's clock
	pauses []Pause   // at the last look

	found   time.Time // the end of the last sweep of a series
	since   time.Time // the first of the looks in a row that found an order without an explanation; zero: the last look found none
	backlog Backlog   // of the last such look
	series  *Report   // the sum of the sweeps of the present series; nil: there is none
}

// do looks once, and sweeps if an order is overdue and nothing explains it. It returns the time until the next look.
func (l *lookout) do(ctx context.Context) time.Duration {
	select {
	case l.busy <- struct{}{}:
	default:
		return lookInterval // this process sweeps
	}
	l.looking.Store(true)
	defer func() {
		l.looking.Store(false)
		<-l.busy
	}()
	if wait := lookAtRest - time.Since(l.failedAt); wait > 0 {
		return wait
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	now, found, err := l.look(looking)
	cancel()
	switch {
	case err != nil && ctx.Err() == nil:
		l.o.Logger.Warn("overdue orders cannot be read, will retry", "in", lookAtRest, "err", err)
		l.keeper.giveBack()
	case found: //mutant:overdue-starts-no-sweep
		return l.act(ctx, now)
	default:
		l.since = time.Time{}
		if l.series == nil {
			break
		}
		if time.Since(l.found) < seriesRest {
			return lookInterval
		}
		l.end()
	}
	return lookAtRest
}

// look reports whether an order is overdue, at now, that nothing explains.
func (l *lookout) look(ctx context.Context) (now time.Time, found bool, err error) {
	if now, err = l.o.Store.Now(ctx); err != nil {
		return now, false, fmt.Errorf("read the database clock: %w", err)
	}
	pauses, err := l.o.Pauses(ctx)
	if err != nil {
		l.o.Logger.Debug("pauses are unknown, not reading overdue orders", "err", err)
		return now, false, nil
	}
	l.rewind(now, pauses)
	cutoff := now.Add(-OverdueGrace)
	if l.cutoff.IsZero() || cutoff.Before(l.cutoff) {
		l.cutoff = cutoff
	}
	from := orderclose.Order{Due: l.cutoff.Add(-lookBack)}
	if !l.open.IsZero() && l.open.Before(from.Due) {
		from.Due = l.open
	}
	began := time.Now()
	whole := !began.Before(l.whole) || from.Due.Before(l.after.Due)
	if whole {
		from = l.after
	}
	upTo, found, all, err := l.read(ctx, now, cutoff, from)
	if whole {
		l.after = upTo
	}
	if all {
		l.cutoff = cutoff
	}
	if all || err != nil {
		l.open = time.Time{}
	}
	if whole && (all || found || err != nil) {
		l.whole = time.Now().Add(wholeShare * time.Since(began)) //mutant:whole-look-never-again
	}
	return now, found, err
}

// read reads the orders behind from. It ends at the first order that nothing explains (found), when it has read all orders up to cutoff
// (all), or after lookInterval. All orders between from and upTo are explained. The next whole look begins at upTo and so reads the last page
// again: therefore read reads two pages at least.
func (l *lookout) read(ctx context.Context, now, cutoff time.Time, from orderclose.Order) (upTo orderclose.Order, found, all bool, err error) {
	began, last := time.Now(), from
	upTo = from
	for pages, n := (cycleCheck{}), 0; n < 2 || time.Since(began) < lookInterval; n++ {
		page, err := l.o.Store.Overdue(ctx, cutoff, last, lookPage)
		if err == nil && len(page) > 0 {
			err = pages.add(page)
		}
		if err != nil || len(page) == 0 {
			return upTo, false, err == nil, err
		}
		upTo = last //mutant:explained-read-again
		if i := slices.IndexFunc(page, func(o orderclose.Order) bool { return !l.explained(o, now) }); i >= 0 {
			l.remember(page[i].Due)
			return upTo, true, false, nil
		}
		last = page[len(page)-1]
	}
	return upTo, false, false, nil
}

// remember makes the next looks begin at this due time or before it, until a look has read all orders up to its cutoff.
func (l *lookout) remember(due time.Time) {
	if l.open.IsZero() || due.Before(l.open) {
		l.open = due //mutant:ended-rest-unseen
	}
}

// rewind moves after back to the orders whose explanation has ended since the last look. If the database's clock was set back, after may be
// behind orders that are not overdue yet.
func (l *lookout) rewind(now time.Time, pauses []Pause) {
	same := slices.EqualFunc(l.pauses, pauses, func(a, b Pause) bool { return a.Path == b.Path && a.Category == b.Category })
	if !same || now.Before(l.looked) { //mutant:set-back-unseen
		l.after, l.whole = orderclose.Order{}, time.Time{} //mutant:ended-pause-unseen
	}
	for _, rest := range l.resting {
		if rest.until.After(l.looked) && !rest.until.After(now) {
			if l.remember(rest.due); rest.due.IsZero() { // it is unknown
				l.whole = time.Time{}
			}
			if !rest.due.After(l.after.Due) {
				l.after = orderclose.Order{Due: rest.due} // without an id: before all orders of that time
			}
		}
	}
	l.looked, l.pauses = now, pauses
	l.resting.forget(now)
}

// explained reports whether an order is overdue for a known reason: it is paused, or it rests after a close of it has failed. A backlog
// explains no order.
func (l *lookout) explained(o orderclose.Order, now time.Time) bool {
	return l.resting.rests(o, now) ||
		slices.ContainsFunc(l.pauses, func(p Pause) bool { return p.Category == "" || p.Category == o.Category }) //mutant:pause-explains-nothing
}

// act sweeps, unless the pipeline may still close the orders itself. It returns the time until the next look.
func (l *lookout) act(ctx context.Context, now time.Time) time.Duration {
	if l.since.IsZero() {
		l.since = time.Now()
	}
	before := l.backlog
	l.backlog = l.o.Backlog(ctx)
	if l.backlog.Late && time.Since(l.since) < longestWait { //mutant:keeper-waits-never
		return lookInterval
	}
	s := l.newSweep(func(o orderclose.Order) bool { return l.explained(o, now) })
	s.series, s.start = true, orderclose.Order{Due: l.open}
	if l.backlog.Late && l.backlog.Settled != before.Settled {
		s.limiter = l.slowLimiter
	}
	sweeping, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	r, err := l.underLock(sweeping, false, nil, func(ctx context.Context, r *Report) error { return s.run(ctx, r, OverdueGrace) })
	l.found = time.Now()
	switch {
	case errors.Is(err, ErrHeld) || errors.Is(err, orderclose.ErrPaused) || ctx.Err() != nil:
		return lookInterval
	case err != nil:
		wait := max(lookAtRest, r.Took())
		l.o.Logger.Error("sweep of overdue orders failed, will retry", "in", wait, "err", err)
		l.fail()
		l.keeper.giveBack()
		return wait
	}
	if l.series == nil {
		l.series = &Report{StartedAt: r.StartedAt, OldestDue: r.OldestDue, Lock: r.Lock}
	}
	l.series.add(r)
	if s.cut {
		return 0
	}
	return lookInterval
}

// idle is called while another process is the keeper. This process forgets its cutoff, which would be too old when it becomes the keeper.
func (l *lookout) idle() {
	l.end()
	l.cutoff = time.Time{}
}

// end ends a series. It logs and records the series if it has closed orders. Why an order was not closed is logged already.
func (l *lookout) end() {
	if l.series != nil && l.series.Closed > 0 {
		l.o.Logger.Info("swept overdue orders", "report", *l.series)
		l.record(context.Background(), wire.SweepOverdue, *l.series, nil)
	}
	l.series = nil
}
