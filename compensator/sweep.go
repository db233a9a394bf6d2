package compensator

import (
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/control"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// maxFailures limits the failed orders that a report and a record name; all are counted.
	maxFailures = 100
	// byHand is the time of a pass by hand. It keeps nobody waiting.
	byHand   = 24 * time.Hour
	logEvery = 10 * time.Second // how often a pass by hand logs how far it is
)

// Report says what a pass by hand, or the loop in a period, did. "orderclose compensate -o json" prints its JSON. Each order that a pass by hand
// has found is counted in one of the verdicts, except in a dry run and in a pass that ended with an error.
type Report = control.Sweep

// Failure is an order that could not be closed: its id, its orderclose.FailureCause, the cause in a sentence, and how often
// this process has failed to close it, since when.
type Failure = control.Failure

// add adds one outcome to the report.
func (s *sweep) add(o orderclose.Outcome) {
	r := &s.report
	switch o.Verdict {
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
			r.Failures = append(r.Failures, failureOf(o, r.StartedAt))
		}
	}
}

// failureOf returns the failure of an order at a time of the database's clock.
func failureOf(o orderclose.Outcome, at time.Time) Failure {
	cause, why := o.Why()
	return Failure{OrderID: o.OrderID, Cause: string(cause), Error: why, Times: 1, Since: at.UTC()}
}

// Sweep makes one pass by hand: it tries each order that is overdue now once, and a locked one again at the end, also those that rest in a loop, with or
// without other processes beside it. With dryRun it only counts them. The report is valid also if an error ended the pass early.
func (c *Compensator) Sweep(ctx context.Context, dryRun bool) (Report, error) {
	s := sweep{turn: c.newLoop().newTurn(), logged: time.Now(),
		report: Report{DryRun: dryRun, StartedAt: time.Now().UTC(), Lock: "none", Why: control.SweepOnce}}
	err := s.run(ctx)
	if s.report.TookMillis = time.Since(s.began).Milliseconds(); err != nil {
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
	if !dryRun && !errors.Is(err, orderclose.ErrPaused) {
		c.record(ctx, r)
	}
	return r, err
}

// sweep is a pass by hand. It has the reads and pages of a turn, and none of its limits of time.
type sweep struct {
	*turn
	report Report
	logged time.Time          // when a line of the log said how far it is
	locked []orderclose.Order // a loop beside the pass may have them in a transaction
}

// run makes the pass.
func (s *sweep) run(ctx context.Context) error {
	err := s.begin(ctx)
	if !s.now.IsZero() {
		s.report.StartedAt, s.report.Cutoff = s.now.UTC(), s.cutoff.UTC()
	}
	if err != nil {
		return err
	}
	for s.pass = beginPass(pass{}, s.now, s.cutoff, time.Time{}); s.pass.running; {
		found, position, more, err := s.readPass(ctx, byHand)
		if err != nil {
			return err
		}
		if len(found) > 0 && s.report.Found == 0 {
			s.report.OldestDue = found[0].Due.UTC()
		}
		orders := s.unpaused(found)
		s.report.Found += len(found)
		s.report.Paused += len(found) - len(orders)
		s.logProgress()
		if !s.report.DryRun {
			err = s.close(ctx, orders)
		}
		if err != nil {
			return err
		}
		s.pass.goOn(position, more)
	}
	if len(s.locked) > 0 {
		retry.Sleep(ctx, slowPage)
	}
	return s.close(ctx, s.locked)
}

// close closes orders in pages, and searches those of a page that fails.
func (s *sweep) close(ctx context.Context, orders []orderclose.Order) error {
	for len(orders) > 0 && ctx.Err() == nil {
		results := s.lanes.close(ctx, orders, time.Now().Add(byHand))
		for i := 0; i < len(results); i++ {
			switch r := results[i]; {
			case r.err == nil:
				s.addAll(r)
			case ctx.Err() != nil || errors.Is(r.err, orderclose.ErrNoOrderAtFault):
				return r.err
			case len(r.orders) == 1:
				s.lastErr = r.err
				s.addOutcome(r.orders[0], failure(r.orders[0], r.err))
			default:
				s.lanes.give(r.orders)
				s.lanes.search.Start(ctx)
				if err := s.lanes.search.Wait(); err != nil {
					return err
				}
				for _, found := range s.lanes.noted() {
					if found.err == nil {
						s.addAll(found)
						continue
					}
					s.lastErr = found.err
					for _, o := range found.orders {
						s.addOutcome(o, failure(o, found.err))
					}
				}
			}
			orders = orders[len(results[i].orders):]
		}
		if _, down := s.lanes.silent(); down {
			return errSilent(s.lastErr)
		}
		s.logProgress()
	}
	return ctx.Err()
}

func (s *sweep) addAll(r tried) {
	for i, o := range r.orders {
		s.addOutcome(o, r.outcomes[i])
	}
}

// addOutcome adds the outcome of an order. One that is locked is tried again at the end.
func (s *sweep) addOutcome(o orderclose.Order, outcome orderclose.Outcome) {
	if outcome.Verdict == orderclose.Contended && s.pass.running {
		s.locked = append(s.locked, o)
		return
	}
	s.observe(o, outcome)
	s.add(outcome)
}

// logProgress logs how far the pass is, each logEvery.
func (s *sweep) logProgress() {
	if time.Since(s.logged) >= logEvery {
		s.logged = time.Now()
		s.o.Logger.Info("sweeping", "found", s.report.Found, "closed", s.report.Closed, "failed", s.report.Failed)
	}
}
