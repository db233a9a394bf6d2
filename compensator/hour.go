package compensator

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/overdue"
)

// hour is the period of the hourly compensation that runs now: its row in the SweepLog, which all processes share.
type hour struct {
	period time.Duration
	log    SweepLog
	name   string // of the pipeline

	begin     time.Time      // by the database's clock
	state     string         // as in overdue.Hour
	counts    overdue.Counts // of this process
	unwritten overdue.Counts // not in the row yet
	failures  []Failure      // the first orders of this period that could not be closed
	// unfinished is how many of the last two full periods have no finished compensation. A period before which none ran does not count.
	unfinished int
}

// begins begins the period that has the time now, if it has not begun.
func (h *hour) begins(ctx context.Context, now time.Time) error {
	begin := now.Truncate(h.period)
	if begin.Equal(h.begin) {
		return nil
	}
	var rows [3]overdue.Hour // this period, and the two before
	for i := range rows {
		row, err := h.log.SweepHour(ctx, h.name, begin.Add(-time.Duration(i)*h.period))
		if err != nil {
			return err
		}
		rows[i] = row
	}
	h.begin, h.state, h.counts, h.failures = begin, rows[0].State, overdue.Counts{}, nil //mutant:hour-from-memory
	h.unfinished = unfinishedOf(rows[1], rows[2])
	return nil
}

// unfinishedOf returns how many of the last two full periods have no finished compensation.
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

// add adds the counts of a turn to the row. What cannot be written is added after the next turn.
func (h *hour) add(ctx context.Context, c overdue.Counts) error {
	h.counts.Add(c)
	if h.unwritten.Add(c); h.unwritten == (overdue.Counts{}) || h.begin.IsZero() {
		return nil
	}
	err := h.log.AddSweep(context.WithoutCancel(ctx), h.name, h.begin, h.unwritten)
	if err == nil {
		h.unwritten = overdue.Counts{}
	}
	return err
}

// ended returns the state that the row gets now, and how long the pass took; "": none. The first pass that began in the period is its
// compensation.
func (h *hour) ended(now time.Time, p pass) (took time.Duration, state string) {
	switch {
	case h.state == overdue.Finished || h.begin.IsZero() || now.IsZero():
	case !p.running && !p.ended.IsZero() && !p.beganAt.Before(h.begin): //mutant:pass-of-last-hour
		return p.ended.Sub(p.began), overdue.Finished
	case h.state == "" && now.Sub(h.begin) >= h.period/2:
		return time.Since(p.began), overdue.Unfinished
	}
	return 0, ""
}

// end writes the state of the row.
func (h *hour) end(ctx context.Context, state string, took time.Duration) error {
	err := h.log.EndSweep(ctx, h.name, h.begin, state, took)
	if err == nil {
		h.state = state
	}
	return err
}
