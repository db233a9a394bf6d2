package compensator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// maxFailures limits the failed orders that a report names; all are counted.
	maxFailures = 100
	// byHand is the time of a pass by hand. It keeps nobody waiting.
	byHand   time.Duration = math.MaxInt64
	logEvery               = 10 * time.Second // how often a pass by hand logs how far it is
)

// Report says what a pass by hand did. "orderclose compensate -o json" prints its JSON. Each order that the pass has found is counted in one of
// the verdicts, except in a dry run and in a pass that ended with an error.
type Report struct {
	StartedAt  time.Time `json:"started_at"`      // by the database's clock; if that could not be read, by the machine's
	Cutoff     time.Time `json:"cutoff,omitzero"` // the pass covers orders due at or before this time
	TookMillis int64     `json:"took_ms"`

	DryRun         bool `json:"dry_run,omitempty"` // the pass only counted
	Found          int  `json:"found"`
	Closed         int  `json:"closed"`
	AlreadyPaid    int  `json:"already_paid"`
	AlreadyClosed  int  `json:"already_closed"`
	NotDue         int  `json:"not_due"`
	Excluded       int  `json:"excluded"`
	Paused         int  `json:"paused"`
	PaymentPending int  `json:"payment_pending"`
	Failed         int  `json:"failed"`

	Failures  []Failure `json:"failures,omitempty"` // the first hundred of Failed
	OldestDue time.Time `json:"oldest_due,omitzero"`
	Error     string    `json:"error,omitempty"` // why it did not finish; empty: it did
}

// Failure is why an order cannot be closed.
type Failure struct {
	OrderID string `json:"order_id"`
	Cause   string `json:"cause"` // an orderclose.FailureCause
	Error   string `json:"error"` // the cause and what was found, in one sentence
}

// String names the order, and says why it stays open.
func (f Failure) String() string {
	return fmt.Sprintf("order %s cannot be closed: %s", f.OrderID, f.Error)
}

// failureOf returns why an order was not closed.
func failureOf(o orderclose.Outcome) Failure {
	cause, why := o.Why()
	return Failure{OrderID: o.OrderID, Cause: string(cause), Error: why}
}

// Sweep makes one pass by hand: it tries each order that is overdue now once, and a locked one again at the end, also those that rest in a loop, with or
// without other processes beside it. With dryRun it only counts them. The report is valid also if an error ended the pass early.
func (c *Compensator) Sweep(ctx context.Context, dryRun bool) (Report, error) {
	s := sweep{loop: c.newLoop(), logged: time.Now(), report: Report{DryRun: dryRun, StartedAt: time.Now().UTC()}}
	s.loop.found = s.add
	err := s.run(ctx)
	if s.report.TookMillis = time.Since(s.loop.began).Milliseconds(); err != nil {
		s.report.Error = err.Error()
	}
	r := s.report
	logger := c.o.Logger.With("found", r.Found, "closed", r.Closed, "failed", r.Failed, "payment_pending", r.PaymentPending, "paused", r.Paused,
		"dry_run", dryRun, "took_ms", r.TookMillis)
	switch {
	case ctx.Err() != nil:
		logger.Info("sweep stopped")
	case err != nil:
		logger.Error("sweep failed", "err", err)
	default:
		logger.Info("swept")
	}
	return r, err
}

// sweep is a pass by hand. It has the reads and pages of a turn, and none of its limits of time.
type sweep struct {
	loop   *loop
	report Report
	logged time.Time          // when a line of the log said how far it is
	locked []orderclose.Order // a loop beside the pass may have them in a transaction
}

// run makes the pass.
func (s *sweep) run(ctx context.Context) error {
	err := s.loop.begin(ctx)
	if !s.loop.now.IsZero() {
		s.report.StartedAt, s.report.Cutoff = s.loop.now.UTC(), s.loop.cutoff.UTC()
	}
	if err != nil {
		return err
	}
	for s.loop.pass = beginPass(pass{}, s.loop.now, s.loop.cutoff, time.Time{}); s.loop.pass.running; {
		found, position, more, err := s.loop.readPass(ctx, byHand)
		if err != nil {
			return err
		}
		if len(found) > 0 && s.report.Found == 0 {
			s.report.OldestDue = found[0].Due.UTC()
		}
		orders := s.loop.unpaused(found)
		s.report.Found += len(found)
		s.report.Paused += len(found) - len(orders)
		s.logProgress()
		if !s.report.DryRun {
			err = s.close(ctx, orders)
		}
		if err != nil {
			return err
		}
		s.loop.pass.goOn(position, more)
	}
	if len(s.locked) > 0 {
		retry.Sleep(ctx, slowPage)
	}
	return s.close(ctx, s.locked)
}

// close closes orders, and waits until the slow lane has searched those of pages that fail.
func (s *sweep) close(ctx context.Context, orders []orderclose.Order) error {
	for pages := range slices.Chunk(orders, pagesAtOnce*s.loop.lanes.most) {
		_, err := s.loop.ask(ctx, pages, byHand)
		err = cmp.Or(err, s.loop.lanes.search.Wait())
		s.loop.takeNotes(ctx)
		if _, down := s.loop.lanes.silent(); down {
			err = cmp.Or(err, errSilent(s.loop.lastErr))
		}
		if err != nil {
			return err
		}
		s.logProgress()
	}
	return nil
}

// add adds the outcome of an order. One that is locked is tried again at the end.
func (s *sweep) add(o orderclose.Order, outcome orderclose.Outcome) {
	r := &s.report
	if outcome.Verdict == orderclose.Contended && s.loop.pass.running {
		s.locked = append(s.locked, o)
		return
	}
	s.loop.observe(o, outcome)
	switch outcome.Verdict {
	case orderclose.Closed:
		r.Closed++
	case orderclose.AlreadyPaid:
		r.AlreadyPaid++
	case orderclose.AlreadyClosed:
		r.AlreadyClosed++
	case orderclose.NotDue:
		r.NotDue++
	case orderclose.Excluded:
		r.Excluded++
	case orderclose.Paused:
		r.Paused++
	case orderclose.PaymentPending: // the loop tries it again
		r.PaymentPending++
	default:
		r.Failed++
		if len(r.Failures) < maxFailures {
			r.Failures = append(r.Failures, failureOf(outcome))
		}
	}
}

// logProgress logs how far the pass is, each logEvery.
func (s *sweep) logProgress() {
	if time.Since(s.logged) >= logEvery {
		s.logged = time.Now()
		s.loop.o.Logger.Info("sweeping", "found", s.report.Found, "closed", s.report.Closed, "failed", s.report.Failed)
	}
}
