package compensator

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/pausing"
)

const (
	// turnTime is how long a turn asks, and the default time between the begins of two turns.
	turnTime = 5 * time.Second
	// maxFailedTurns is after how many failed turns in a row, and longestWithoutTurn after what time without a good one, the holder gives the lock
	// back. If Options.Every is long, that time is leastTurns times as long.
	maxFailedTurns     = 3
	longestWithoutTurn = time.Minute
	leastTurns         = 3
	// keepGauges is for how long the gauges of a process that has lost the lock stay: perhaps no process holds it.
	keepGauges = time.Minute
)

// loop closes what is overdue, turn by turn. One goroutine owns it. It keeps what it knows while another process holds the lock.
type loop struct {
	o        Options
	metrics  *sweepMetrics
	calls    *calls
	lanes    *lanes
	giveBack func() // gives the lock back
	// found gets the outcome of each order in a pass by hand. Nil: in the loop.
	found func(o orderclose.Order, outcome orderclose.Outcome)

	turn
	newsUpTo   time.Time       // the cutoff of the last turn that read news; zero: none has
	news       reads           // of the news
	older, old reads           // of the pass, and of its orders beyond oldReads
	pass       pass            // over all overdue orders
	ahead      time.Duration   // of the database's clock, by the last turn
	skipped    time.Time       // the due time of the oldest order that news have left to the next pass; zero: none
	newest     look            // at the newest unpaid orders
	rests      rests           // what was tried, and is found again
	pauses     []pausing.Pause // at the last turn, also those that have ended
	paused     pausesOn        // at the last turn
	broken     bool            // the last turn failed
	recovered  time.Time       // the begin of the first turn after the last failed one, by the database's clock: orders due before may be late because of that
	hour       hour            // the present period
	logged     map[string]time.Time
	lastErr    error     // of the last order that failed
	failed     int       // failed turns in a row
	good       time.Time // when the last good turn ended, or this process began to hold the lock
	last       time.Time // when the last turn began; zero: another process has held the lock for keepGauges
}

func (c *Compensator) newLoop() *loop {
	return &loop{o: c.o, metrics: c.metrics, calls: c.calls, lanes: newLanes(c.calls, c.o), turn: turn{began: time.Now()}, rests: rests{},
		logged: map[string]time.Time{}, good: time.Now()}
}

// do takes a turn, and returns the time until the next one.
func (l *loop) do(ctx context.Context) time.Duration {
	l.turn = turn{began: time.Now()}
	if l.last.IsZero() {
		l.metrics.untried.Set(metrics.Timestamp(l.began)) // until a turn has read the clock
	}
	l.last = l.began
	err := l.run(ctx)
	if l.closed > 0 {
		l.o.Logger.Info("closed overdue orders", "orders", l.closed)
	}
	l.takeNotes(ctx)
	if silent, _ := l.lanes.silent(); silent && err == nil {
		err = errSilent(l.lastErr) //mutant:silence-unnoticed
	}
	closing := err // why it failed
	if errors.Is(err, orderclose.ErrPaused) {
		closing = nil
	}
	failed := errors.Join(closing, l.keepHour(ctx))
	l.show()
	if ctx.Err() != nil {
		return 0
	}
	if l.unread != nil {
		l.o.Logger.Warn("overdue orders could not be read, will retry", "err", l.unread)
	}
	l.o.TurnEnded(cmp.Or(closing, l.unread))
	return nextTurn(time.Since(l.began), l.judge(failed), l.left && err == nil)
}

// nextTurn returns the time until the next turn: it begins every after the last one began, or at once if that took longer or left orders.
func nextTurn(took, every time.Duration, left bool) time.Duration {
	if left { //mutant:cut-turn-waits
		return 0
	}
	return max(every-took, 0)
}

// judge counts a turn as good or failed. It returns the time from the begin of this turn to that of the next one, which is short after a failed turn.
// A turn also fails if only the row of its hour could not be written. A process whose turns fail gives the lock back: another one may be able to work.
func (l *loop) judge(err error) time.Duration {
	if err == nil {
		l.good, l.failed = time.Now(), 0
		return l.o.Every
	}
	if l.metrics.failed.Inc(); !errors.Is(err, errNoAnswer) {
		l.failed++ // silence may be that of some orders: it takes a minute
	}
	l.o.Logger.Error("turn of the compensator failed, will retry", "in_a_row", l.failed, "err", err)
	if failsTooLong(l.failed, time.Since(l.good), l.o.Every) {
		l.o.Logger.Warn("giving the lock of the compensator back: another process may be able to work", "failed_turns", l.failed)
		l.good, l.failed = time.Now(), 0
		l.giveBack()
	}
	return min(l.o.Every, turnTime)
}

// failsTooLong reports whether a process gives the lock back, after failed turns in a row and a time without a good one.
func failsTooLong(failed int, without, every time.Duration) bool {
	return failed >= maxFailedTurns || without >= max(longestWithoutTurn, leastTurns*every)
}

// idle is called while another process holds the lock.
func (l *loop) idle() {
	l.good, l.failed, l.hour.known = time.Now(), 0, false
	l.lanes.stop()
	l.lanes.reset()
	if time.Since(l.last) < keepGauges {
		return
	}
	l.last, l.newsUpTo, l.skipped, l.pass = time.Time{}, time.Time{}, time.Time{}, pass{} // another process has asked for these orders
	l.o.TurnEnded(nil)
	l.metrics.untried.Set(0)
	l.metrics.unfinished.Set(0)
	l.metrics.resting.Set(0)
	l.metrics.lastPass.Set(0)
}

// show updates the gauges after a turn.
func (l *loop) show() {
	l.metrics.resting.Set(float64(len(l.rests)))
	if !l.pass.ended.IsZero() {
		l.metrics.lastPass.Set(metrics.Timestamp(l.pass.ended))
	}
	if !l.now.IsZero() && !l.newsUpTo.IsZero() { // else the last value holds
		l.metrics.untried.Set(metrics.Timestamp(l.began.Add(l.oldestUntried().Sub(l.now) + l.o.Every)))
	}
}

// oldestUntried returns the due time of the oldest order that may be overdue and was not asked for.
func (l *loop) oldestUntried() time.Time {
	oldest := l.newsUpTo
	for _, at := range []time.Time{l.skipped, l.pass.untried} {
		if !at.IsZero() && at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}
