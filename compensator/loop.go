package compensator

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

const (
	// turnTime is how long a turn asks, and the default time between the begins of two turns.
	turnTime = 5 * time.Second
	// maxFailedTurns is after how many failed turns in a row, and longestWithoutTurn after what time without a good one, the holder gives the lock
	// back. If Options.Every is long, that time is leastTurns times as long.
	maxFailedTurns     = 3
	longestWithoutTurn = time.Minute
	leastTurns         = 3
)

// loop closes what is overdue, turn by turn. One goroutine owns it. It keeps what it knows while another process holds the lock.
type loop struct {
	*Compensator
	holder *holder
	hand   *Report // of a pass by hand, in place of a loop; else nil

	clock      databaseClock
	newsUpTo   time.Time     // the cutoff of the last turn that read news; zero: none has
	took       databaseClock // when this process began to hold the lock
	news       reads         // of the news
	older, old reads         // of the pass, and of its orders beyond oldReads
	pass       pass          // over all overdue orders
	rests      *rests        // what was tried, and is found again
	pauses     []Pause       // at the last turn
	skipped    time.Time     // the due time of the oldest order that news have left to the next pass; zero: none
	broken     bool          // the last turn failed
	failing    time.Time     // the begin of the first turn after the last one that failed, by the database's clock: orders due before may be late because of that
	hour       hour          // the present period
	good       time.Time     // when the last good turn ended, by the monotonic clock, or when this process began to hold the lock
	failed     int           // failed turns in a row
	logged     causes        // the failures that were logged
	phase      time.Duration // by how much the first turn is delayed
	turns      bool          // a turn has begun since this process leads
	idleSince  time.Time
}

// databaseClock is the database's clock at the begin of the last turn.
type databaseClock struct {
	now time.Time // by the database
	at  time.Time // by the monotonic clock
}

// estimate returns the database's time as this process knows it.
func (c databaseClock) estimate() time.Time { return c.now.Add(time.Since(c.at)) }

func (c *Compensator) newLoop(h *holder) *loop {
	return &loop{Compensator: c, holder: h, rests: newRests(), logged: causes{}, phase: rand.N(c.o.Every),
		hour: hour{period: c.o.Period, log: c.calls, name: c.o.Name}}
}

// do takes a turn, and returns the time until the next one.
func (l *loop) do(ctx context.Context) time.Duration {
	if !l.turns {
		l.turns, l.good, l.failed, l.took = true, time.Now(), 0, databaseClock{}
		if l.newsUpTo.IsZero() {
			l.metrics.unasked(time.Now())
		}
		if l.holder.state.Load() == "none" { // all processes work
			return l.phase
		}
	}
	began := time.Now()
	t := l.newTurn()
	err := t.run(ctx)
	if err = errors.Join(err, l.endTurn(ctx, t)); ctx.Err() != nil {
		return 0
	}
	l.judge(err)
	return nextTurn(time.Since(began), l.o.Every, t.left && err == nil)
}

// nextTurn returns the time until the next turn: it begins Options.Every after the last one began, or at once if that took longer or left orders.
func nextTurn(took, every time.Duration, left bool) time.Duration {
	if left { //mutant:cut-turn-waits
		return 0
	}
	return max(every-took, 0)
}

// judge counts a turn as good or failed. A process whose turns fail gives the lock back.
func (l *loop) judge(err error) {
	if err == nil || errors.Is(err, orderclose.ErrPaused) {
		l.good, l.failed = time.Now(), 0
		return
	}
	l.failed++
	l.metrics.failed.Inc()
	l.o.Logger.Error("turn of the compensator failed, will retry", "in_a_row", l.failed, "err", err)
	if failsTooLong(l.failed, time.Since(l.good), l.o.Every) {
		l.o.Logger.Warn("giving the lock of the compensator back: another process may be able to work", "failed_turns", l.failed)
		l.good, l.failed = time.Now(), 0
		l.holder.giveBack()
	}
}

// failsTooLong reports whether a process gives the lock back, after failed turns in a row and a time without a good one.
func failsTooLong(failed int, without, every time.Duration) bool {
	return failed >= maxFailedTurns || without >= max(longestWithoutTurn, leastTurns*every)
}

// idle is called while another process holds the lock. For the first minute, in which perhaps none does, the gauges stay.
func (l *loop) idle() {
	if l.turns {
		l.turns, l.idleSince = false, time.Now()
	}
	if time.Since(l.idleSince) < time.Minute {
		return
	}
	l.metrics.unasked(time.Time{})
	l.metrics.unfinished.Set(0)
	l.metrics.resting.Set(0)
	l.metrics.lastPass.Set(0)
}

// endTurn writes what a turn has decided, and updates the metrics.
func (l *loop) endTurn(ctx context.Context, t *turn) error {
	if l.o.Alone { // without a pipeline no order was missed
		t.counts.Missed = 0
	}
	err := errors.Join(t.hourErr, l.hour.add(ctx, t.counts))
	l.metrics.count(t.counts)
	l.metrics.unfinished.Set(float64(l.hour.unfinished))
	l.metrics.resting.Set(float64(len(l.rests.byID)))
	if !l.clock.now.IsZero() {
		l.metrics.unasked(l.clock.at.Add(l.oldestUnasked().Sub(l.clock.now) + l.o.Every))
	}
	l.hour.failures = append(l.hour.failures, t.fails...)
	l.hour.failures = l.hour.failures[:min(len(l.hour.failures), maxFailures)]
	if ended, state := l.hour.ended(t.now, l.pass); state != "" {
		l.record(ctx, state, ended, l.hour.begin)
		err = errors.Join(err, l.hour.end(ctx, state, ended))
	}
	return err
}

// oldestUnasked returns a due time that no order before it has that was due for longer than the grace, is not tried, and was known to be overdue.
func (l *loop) oldestUnasked() time.Time {
	oldest := l.newsUpTo
	if !l.skipped.IsZero() && l.skipped.Before(oldest) {
		oldest = l.skipped
	}
	if at := l.pass.unasked; !at.IsZero() && at.Before(oldest) {
		oldest = at
	}
	return oldest
}

// explains returns why the loop, and not the pipeline, has closed an order.
func (l *loop) explains(o orderclose.Order, tried bool) (c overdue.Counts) {
	switch {
	case tried || !o.Due.After(l.failing):
		c.AfterFailure = 1
	case endedPause(l.pauses, o, l.clock.now):
		c.AfterPause = 1
	default:
		c.Missed = 1
	}
	return c
}

// endedPause reports whether a pause that has ended covered the order when it came due, or later.
func endedPause(pauses []Pause, o orderclose.Order, now time.Time) bool {
	for _, p := range pauses {
		if !p.Until.After(now) && !o.Due.After(p.Until) && (p.Category == "" || p.Category == o.Category) {
			return true
		}
	}
	return false
}

// pausedAll returns the pause of all closes that is on.
func pausedAll(pauses []Pause, now time.Time) (p Pause, on bool) {
	for _, p := range pauses {
		if p.Category == "" && p.Until.After(now) {
			return p, true
		}
	}
	return Pause{}, false
}

// pausedCategories returns the categories that are paused. Orders without a category are never among them.
func pausedCategories(pauses []Pause, now time.Time) map[string]bool {
	paused := map[string]bool{}
	for _, p := range pauses {
		if p.Category != "" && p.Until.After(now) {
			paused[p.Category] = true
		}
	}
	return paused
}

// pauseEnded reports whether a pause that was on at the last turn is not on any more.
func pauseEnded(before []Pause, then time.Time, now map[string]bool, all bool) bool {
	_, wasAll := pausedAll(before, then)
	ended := wasAll && !all
	for category := range pausedCategories(before, then) {
		ended = ended || !now[category]
	}
	return ended //mutant:ended-pause-unseen
}
