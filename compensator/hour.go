package compensator

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/control"
	"github.com/orderclose/orderclose/internal/overdue"
)

// recordTimeout is how long Options.Record may take.
const recordTimeout = time.Second

// hour is the period of the hourly compensation that runs now: its row in the SweepLog, which all processes share.
type hour struct {
	begin     time.Time      // by the database's clock
	known     bool           // the row was read since this process holds the lock
	state     string         // as in overdue.Hour
	counts    overdue.Counts // of this process
	unwritten overdue.Counts // not in the row yet
	failures  []Failure      // the first orders of this period that could not be closed
}

// at returns the hour that has the time now: this one, or the next one. What is not in a row yet goes to the next one.
func (h hour) at(now time.Time, period time.Duration) hour {
	if begin := now.Truncate(period); !begin.Equal(h.begin) {
		return hour{begin: begin, unwritten: h.unwritten}
	}
	return h
}

// count counts orders that a turn has decided on.
func (l *loop) count(c overdue.Counts) {
	l.hour.counts.Add(c)
	l.hour.unwritten.Add(c)
	l.metrics.count(c)
}

// keepHour writes into the row what turns have decided, and the state of the row when the compensation has ended. What cannot be written is
// written after the next turn.
func (t *turn) keepHour(ctx context.Context) error {
	h := &t.hour
	if t.now.IsZero() {
		return nil
	}
	if err := t.readHour(ctx); err != nil {
		return err
	}
	if h.unwritten != (overdue.Counts{}) {
		err := t.inLog(context.WithoutCancel(ctx), "AddSweep", func(ctx context.Context, log SweepLog) error {
			return log.AddSweep(ctx, t.o.Name, h.begin, h.unwritten)
		})
		if err != nil {
			return err
		}
		h.unwritten = overdue.Counts{}
	}
	took, state := h.ended(t.now, t.o.Period, t.pass)
	if state == "" {
		return nil
	}
	err := t.inLog(ctx, "EndSweep", func(ctx context.Context, log SweepLog) error {
		return log.EndSweep(ctx, t.o.Name, h.begin, state, took)
	})
	if err == nil {
		h.state = state
		t.recordHour(ctx, took)
	}
	return err
}

// readHour reads the row of the period, if it is not known, and those of the two before.
func (t *turn) readHour(ctx context.Context) error {
	if t.hour.known {
		return nil
	}
	var rows [3]overdue.Hour
	err := t.inLog(ctx, "SweepHour", func(ctx context.Context, log SweepLog) (err error) {
		for i := 0; i < len(rows) && err == nil; i++ {
			rows[i], err = log.SweepHour(ctx, t.o.Name, t.hour.begin.Add(-time.Duration(i)*t.o.Period))
		}
		return err
	})
	if err == nil {
		t.hour.state, t.hour.known = rows[0].State, true //mutant:hour-from-memory
		t.metrics.unfinished.Set(float64(unfinishedOf(rows[1], rows[2])))
	}
	return err
}

// inLog calls a method of the SweepLog, if there is one.
func (t *turn) inLog(ctx context.Context, method string, f func(ctx context.Context, log SweepLog) error) error {
	if t.o.SweepLog == nil {
		return nil
	}
	return t.calls.call(ctx, "the log's method "+method, func(ctx context.Context) error { return f(ctx, t.o.SweepLog) })
}

// unfinishedOf returns how many of the last two full periods have no finished compensation. A period before which none ran does not count.
func unfinishedOf(last, before overdue.Hour) (n int) {
	ran := func(h overdue.Hour) bool { return h.State != "" || h.Counts != (overdue.Counts{}) }
	if ran(before) && before.State != overdue.Finished {
		n++
	}
	if (ran(last) || ran(before)) && last.State != overdue.Finished {
		n++
	}
	return n
}

// ended returns the state that the row gets now, and how long the pass took; "": none. The first pass that began in the period is its
// compensation.
func (h hour) ended(now time.Time, period time.Duration, p pass) (took time.Duration, state string) {
	switch {
	case h.state == overdue.Finished:
	case !p.running && !p.ended.IsZero() && !p.beganAt.Before(h.begin): //mutant:pass-of-last-hour
		return p.ended.Sub(p.began), overdue.Finished
	case h.state == "" && now.Sub(h.begin) >= period/2:
		return now.Sub(h.begin), overdue.Unfinished
	}
	return 0, ""
}

// recordHour keeps a record of the present period, and logs one that is unfinished.
func (t *turn) recordHour(ctx context.Context, took time.Duration) {
	c := t.hour.counts
	closed, failed := int(c.Missed+c.AfterPause+c.AfterFailure), int(c.NotClosed)
	s := Report{
		StartedAt: t.pass.beganAt.UTC(), Cutoff: t.pass.end.UTC(), TookMillis: took.Milliseconds(), Lock: t.lock(), Why: control.SweepPeriod,
		PeriodMillis: t.o.Period.Milliseconds(), Found: closed + failed, Closed: closed, Failed: failed, Failures: t.hour.failures,
		Missed: int(c.Missed), AfterPause: int(c.AfterPause), AfterFailure: int(c.AfterFailure),
	}
	if s.StartedAt.IsZero() {
		s.StartedAt = t.hour.begin.UTC()
	}
	if t.hour.state == overdue.Unfinished {
		s.Error = "no pass over all overdue orders has ended in half of the period"
		t.o.Logger.Error("hourly compensation is not finished", "period_begin", t.hour.begin.UTC())
	}
	t.record(ctx, s)
}

// record keeps a record. A failure is logged. It goes on when ctx ends, because a process that stops records its last pass.
func (c *Compensator) record(ctx context.Context, s Report) {
	if c.o.Record == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := c.o.Record(ctx, s); err != nil {
		c.o.Logger.Warn("sweep not recorded in the control topic", "err", err)
	}
}
