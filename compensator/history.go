package compensator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/wire"
)

// recordTimeout limits an append to the history. It is short because a turn, and a process that stops, wait for it.
const recordTimeout = time.Second

// History is the control topic, to which a Compensator appends a record of each period and of each pass by hand. The rows of the SweepLog
// remain if Kafka is away. All fields are required.
type History struct {
	Appender HistoryAppender
	Topic    string
	Holder   string // identifies this process in the records
}

// HistoryAppender appends to a partition of a topic in one request, and returns when all in-sync replicas
// have the messages. It is Log of pipeline.Connections.
type HistoryAppender interface {
	Append(ctx context.Context, topic string, partition int, messages []wire.Message) (time.Time, error)
}

func (h *History) check() error {
	if h != nil && (h.Appender == nil || h.Topic == "" || h.Holder == "") {
		return errors.New("compensator: History needs Appender, Topic and Holder")
	}
	return nil
}

// recorder appends records to the History. It is safe for concurrent use.
type recorder struct {
	history *History // nil: nothing is recorded
	logger  *slog.Logger
}

// add appends a record. A failure is logged. add goes on when ctx ends, because a process that stops records its last sweep.
func (r *recorder) add(ctx context.Context, s wire.Sweep) {
	if r.history == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	s.Holder = r.history.Holder
	m, err := s.Encode()
	if err == nil {
		_, err = r.history.Appender.Append(ctx, r.history.Topic, 0, []wire.Message{m})
	}
	if err != nil {
		r.logger.Warn("sweep not recorded in the control topic", "topic", r.history.Topic, "err", err)
	}
}

// record appends a record of the period that began at begin, and logs it.
func (l *loop) record(ctx context.Context, state string, took time.Duration, begin time.Time) {
	c := l.hour.counts
	s := wire.Sweep{
		StartedAt: l.pass.beganAt.UTC(), Cutoff: l.pass.end.UTC(), TookMillis: took.Milliseconds(), Why: wire.SweepPeriod,
		PeriodMillis: l.o.Period.Milliseconds(), Closed: int(c.Missed + c.AfterPause + c.AfterFailure), Failed: int(c.NotClosed), Failures: l.hour.failures,
		Missed: int(c.Missed), AfterPause: int(c.AfterPause), AfterFailure: int(c.AfterFailure),
	}
	s.Lock, _ = l.holder.state.Load().(string)
	if s.Found = s.Closed + s.Failed; s.StartedAt.IsZero() {
		s.StartedAt = begin.UTC()
	}
	if state == overdue.Unfinished {
		s.Error = "no pass over all overdue orders has ended in half of the period"
		l.o.Logger.Error("hourly compensation is not finished", "period_begin", begin.UTC())
	}
	l.recorder.add(ctx, s)
}

// recordSweep appends a record of a pass by hand.
func (c *Compensator) recordSweep(ctx context.Context, r Report, err error) {
	s := wire.Sweep{
		StartedAt: r.StartedAt.UTC(), Cutoff: r.Cutoff.UTC(), TookMillis: r.TookMillis, Lock: "none", Why: wire.SweepOnce,
		Found: r.Found, Closed: r.Closed, AlreadyPaid: r.AlreadyPaid, AlreadyClosed: r.AlreadyClosed, NotDue: r.NotDue,
		Excluded: r.Excluded, Paused: r.Paused, PaymentPending: r.PaymentPending, Failed: r.Failed, Failures: r.Failures, OldestDue: r.OldestDue.UTC(),
	}
	if s.StartedAt.IsZero() { // the database's clock could not be read
		s.StartedAt = time.Now().Add(-r.Took()).UTC()
	}
	if err != nil {
		s.Error = cmp.Or(err.Error(), "it failed")
	}
	c.recorder.add(ctx, s)
}
