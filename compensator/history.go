package compensator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// recordTimeout limits an append to the history. It is short because a process that stops waits
	// for it.
	recordTimeout = 3 * time.Second
	// maxUnrecorded is how many sweeps wait for the control topic to accept records. If more do, the
	// oldest have no record.
	maxUnrecorded = 24
)

// History is the control topic, to which a Compensator appends a record of each sweep. All fields are
// required.
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

// recorder appends sweeps to the History. While the topic accepts nothing, they wait in memory. It is
// safe for concurrent use.
type recorder struct {
	history *History // nil: nothing is recorded
	logger  *slog.Logger

	mu         sync.Mutex
	unrecorded []wire.Message // oldest first
}

// add records a sweep. A failure is logged, and the next flush tries again. add goes on when ctx ends,
// because a process that stops records its last sweep.
func (r *recorder) add(ctx context.Context, s wire.Sweep) {
	s.Holder = r.history.Holder
	m, err := s.Encode()
	if err == nil {
		r.keep(nil, []wire.Message{m})
		err = r.flush(context.WithoutCancel(ctx))
	}
	if err != nil {
		r.logger.Warn("sweep not recorded in the control topic", "topic", r.history.Topic, "err", err)
	}
}

// keep puts messages before and behind those that wait.
func (r *recorder) keep(before, behind []wire.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(before, r.unrecorded, behind)
	r.unrecorded = all[max(0, len(all)-maxUnrecorded):]
}

// flush appends the sweeps that are not recorded yet.
func (r *recorder) flush(ctx context.Context) error {
	r.mu.Lock()
	waiting := r.unrecorded
	r.unrecorded = nil
	r.mu.Unlock()
	if len(waiting) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	_, err := r.history.Appender.Append(ctx, r.history.Topic, 0, waiting)
	if err != nil {
		r.keep(waiting, nil) //mutant:history-append-lost
	}
	return err
}

// record appends a record of the sweep to the history. It leaves out dry runs, sweeps that did not
// begin, and sweeps that a pause ended before they closed an order: a compensator begins one each
// minute of the pause.
func (c *Compensator) record(ctx context.Context, why wire.SweepReason, r Report, err error) {
	if c.recorder.history == nil || r.DryRun || r.Lock == "" || errors.Is(err, orderclose.ErrPaused) && r.Closed == 0 {
		return
	}
	s := wire.Sweep{
		StartedAt: r.StartedAt.UTC(), Cutoff: r.Cutoff.UTC(), TookMillis: r.TookMillis, Lock: r.Lock, Why: why, PeriodMillis: c.o.Period.Milliseconds(),
		Found: r.Found, Closed: r.Closed, AlreadyPaid: r.AlreadyPaid, AlreadyClosed: r.AlreadyClosed, NotDue: r.NotDue,
		Excluded: r.Excluded, Paused: r.Paused, PaymentPending: r.PaymentPending, Failed: r.Failed, Failures: r.Failures, OldestDue: r.OldestDue.UTC(),
	}
	if s.StartedAt.IsZero() { // the database's clock could not be read
		s.StartedAt = time.Now().Add(-r.Took()).UTC()
	}
	for cause, n := range r.Causes {
		if !slices.Contains(Causes(), Cause(cause)) {
			cause = string(Unknown) // an Investigator's own causes could be any number
		}
		if s.Causes == nil {
			s.Causes = map[string]int{}
		}
		s.Causes[cause] += n
	}
	if err != nil {
		s.Error = err.Error()
	}
	c.recorder.add(ctx, s)
}
