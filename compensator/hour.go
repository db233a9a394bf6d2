package compensator

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/overdue"
)

// hour is the period of the hourly compensation that runs now: its row in the SweepLog, which all processes share.
type hour struct {
	begin     time.Time      // by the database's clock
	known     bool           // the row was read since this process holds the lock
	state     string         // as in overdue.Hour
	unwritten overdue.Counts // not in the row yet
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
	l.hour.unwritten.Add(c)
	l.metrics.count(c)
}

// keepHour writes into the row what turns have decided, and the state of the row when the compensation has ended. What cannot be written is
// written after the next turn.
func (l *loop) keepHour(ctx context.Context) error {
	h := &l.hour
	if l.now.IsZero() {
		return nil
	}
	if err := l.readHour(ctx); err != nil {
		return err
	}
	if h.unwritten != (overdue.Counts{}) {
		err := l.inLog(context.WithoutCancel(ctx), "AddSweep", func(ctx context.Context, log SweepLog) error {
			return log.AddSweep(ctx, l.o.Name, h.begin, h.unwritten)
		})
		if err != nil {
			return err
		}
		h.unwritten = overdue.Counts{}
	}
	took, state := h.ended(l.now, l.o.Period, l.pass)
	if state == "" {
		return nil
	}
	err := l.inLog(ctx, "EndSweep", func(ctx context.Context, log SweepLog) error {
		return log.EndSweep(ctx, l.o.Name, h.begin, state, took)
	})
	if err == nil {
		h.state = state
	}
	if err == nil && state == overdue.Unfinished {
		l.o.Logger.Error("hourly compensation is not finished: no pass over all overdue orders has ended in half of the period", "period_begin", h.begin.UTC())
	}
	return err
}

// readHour reads the row of the period, if it is not known, and those of the two before.
func (l *loop) readHour(ctx context.Context) error {
	if l.hour.known {
		return nil
	}
	var rows [3]overdue.Hour
	err := l.inLog(ctx, "SweepHour", func(ctx context.Context, log SweepLog) (err error) {
		for i := 0; i < len(rows) && err == nil; i++ {
			rows[i], err = log.SweepHour(ctx, l.o.Name, l.hour.begin.Add(-time.Duration(i)*l.o.Period))
		}
		return err
	})
	if err == nil {
		l.hour.state, l.hour.known = rows[0].State, true //mutant:hour-from-memory
		l.metrics.unfinished.Set(float64(unfinishedOf(rows[1], rows[2])))
	}
	return err
}

// inLog calls a method of the SweepLog, if there is one.
func (l *loop) inLog(ctx context.Context, method string, f func(ctx context.Context, log SweepLog) error) error {
	if l.o.SweepLog == nil {
		return nil
	}
	return l.calls.call(ctx, "the log's method "+method, func(ctx context.Context) error { return f(ctx, l.o.SweepLog) })
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
