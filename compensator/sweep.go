package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/retry"
)

// notClosed is the cause label of orders that a sweep, but not one of a series, found and did not close.
const notClosed Cause = "not_closed"

// pagesInParallel is how many pages are closed concurrently. Two transactions keep one
// database server busy (make bench-close).
const pagesInParallel = 2

const (
	// maxSilentPages is how many pages in a row without any verdict end a sweep. So many
	// mean that the store is down, rather than that one page is at fault.
	maxSilentPages = 3
	// silentPause is how long a sweep waits after such a page. It is longer than a
	// circuit breaker stays open (5 s).
	silentPause = 6 * time.Second
	// maxUnresolvedPages is how many pages of orders without a verdict a sweep keeps
	// in memory, to retry them at its end.
	maxUnresolvedPages = 10
	// maxSilentRetries is how many retries in a row may bring no verdict.
	maxSilentRetries = 3
	// contendedPause is how long a sweep waits, at its end, before it asks again for the orders that other
	// transactions had locked. A closer waits as long. It asks contendedAsks times.
	contendedPause = time.Second
	contendedAsks  = 3
	// maxRemembered limits the failed orders that are remembered for the next sweep, and the
	// locked ones that are asked for again.
	maxRemembered = 1000
)

// progressInterval is the time between two log lines about progress.
const progressInterval = 10 * time.Second

// sweepRun is the state of one sweep.
type sweepRun struct {
	*Compensator
	limiter       *rate.Limiter
	skip          func(orderclose.Order) bool // leaves orders out
	series        bool                        // a sweep of a series: it ends after lookAtRest, and the next one goes on
	start         orderclose.Order            // of a series: it begins behind this order
	cut           bool                        // it has ended before the last page
	r             *Report
	investigation Investigation // nil: causes are not looked up
	begun         bool          // whether investigation is set, if it can be
	began         time.Time
	logged        time.Time          // last log line about progress
	silent        int                // pages in a row without any verdict
	unresolved    []orderclose.Order // orders without a verdict, and locked ones: they are asked for again
	locked        int                // how many of them were locked
	lastCall      bool               // they are being asked for again
	lastErr       error              // why the last order without a verdict has none
	failed        map[string]failing // orders that failed in this sweep
	paused        pauses             // that this sweep has met
	asked         time.Time          // when the present pages are closed
	cycle         cycleCheck         // of the current pass
}

// newSweep returns a sweep that leaves out some orders, for run.
func (c *Compensator) newSweep(skip func(orderclose.Order) bool) *sweepRun {
	return &sweepRun{Compensator: c, limiter: c.limiter, skip: skip, began: time.Now(), logged: time.Now(), failed: map[string]failing{}, paused: pauses{}}
}

// sweep closes all overdue orders and then stores that the sweep finished.
func (c *Compensator) sweep(ctx context.Context, r *Report) error {
	s := c.newSweep(func(o orderclose.Order) bool { return c.o.Alone && c.resting.rests(o, r.StartedAt) })
	err := s.run(ctx, r, c.o.Grace) //mutant:sweep-ignores-grace
	if !r.DryRun && (err == nil || errors.Is(err, orderclose.ErrPaused)) {
		c.notePauses(s.paused, err)
	}
	if err != nil || r.DryRun {
		return err
	}
	return c.o.SweepLog.SweepFinished(ctx, c.o.Name)
}

// run closes the orders that are overdue by more than the grace, and remembers those that failed.
func (s *sweepRun) run(ctx context.Context, r *Report, grace time.Duration) error {
	now, err := s.o.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the database clock: %w", err)
	}
	s.r, r.StartedAt, r.Cutoff = r, now, now.Add(-grace)
	s.resting.forget(now)
	if err := s.sweepAll(ctx); err != nil || r.DryRun {
		return err
	}
	for id, f := range s.lastFailed {
		if _, tried := s.failed[id]; !tried && s.resting.rests(orderclose.Order{ID: id}, now) {
			s.failed[id] = f
		}
	}
	s.lastFailed = s.failed
	return nil
}

// sweepAll closes all overdue orders. It starts where the last sweep gave up. So the orders
// that the last sweep could not close do not keep other orders from being tried.
func (s *sweepRun) sweepAll(ctx context.Context) error {
	from := s.from
	if s.series {
		from = s.start
	}
	if err := s.pass(ctx, from, time.Time{}); err != nil {
		return err
	}
	if !from.Due.IsZero() && !s.series {
		if err := s.pass(ctx, orderclose.Order{}, from.Due); err != nil {
			return err
		}
	}
	if !s.r.DryRun && !s.series {
		s.from = orderclose.Order{}
	}
	return s.retryUnresolved(ctx)
}

// pass closes the orders after last, page by page. Each page begins after the last
// order of the page before, so orders that cannot be closed delay no others. pass
// ends with the page that reaches until, or with the last page if until is zero.
func (s *sweepRun) pass(ctx context.Context, last orderclose.Order, until time.Time) error {
	s.cycle = cycleCheck{}
	for {
		pages, next, err := s.read(ctx, last)
		if err != nil {
			return fmt.Errorf("read the page after order %q: %w", last.ID, err)
		}
		if len(pages) == 0 {
			return nil
		}
		last = next
		if !s.r.DryRun {
			if err := s.close(ctx, pages); err != nil {
				return fmt.Errorf("close the pages up to order %q: %w", last.ID, err)
			}
		}
		s.progress(last)
		if errors.Is(s.lastErr, orderclose.ErrPaused) {
			return s.lastErr
		}
		if s.silent >= maxSilentPages || len(s.unresolved)-s.locked > maxUnresolvedPages*s.o.PageSize { //mutant:hang-ends-sweep
			if !s.series {
				s.from = last // the next sweep continues here //mutant:sweep-repeats-pages
			}
			return fmt.Errorf("%d orders up to %q have no verdict, the sweep is given up: %w", len(s.unresolved)-s.locked, last.ID, s.lastErr)
		}
		if s.silent > 0 {
			retry.Sleep(ctx, silentPause)
		}
		if s.cut = s.series && time.Since(s.began) >= lookAtRest; s.cut || !until.IsZero() && last.Due.After(until) {
			return nil
		}
	}
}

// retryUnresolved retries the orders without a verdict, after all other orders were tried. It ends when
// several retries in a row bring no verdict. Orders that another transaction had locked, such as a
// payment that was rolled back meanwhile, are asked for contendedAsks times first. An order that also failed in the last
// finished sweep counts as failed. Any other order without a verdict fails the sweep.
func (s *sweepRun) retryUnresolved(ctx context.Context) error {
	for n := 1; s.locked > 0 && n <= contendedAsks; n++ {
		retry.Sleep(ctx, contendedPause)
		s.lastCall = n == contendedAsks
		if err := s.again(ctx); err != nil {
			return err
		}
	}
	s.lastCall = true
	for tries := 0; len(s.unresolved) > 0 && tries < maxSilentRetries; {
		if tries > 0 {
			retry.Sleep(ctx, silentPause)
		}
		before := len(s.unresolved)
		if err := s.again(ctx); err != nil {
			return err
		}
		if tries++; len(s.unresolved) < before {
			tries = 0
		}
	}
	unknown := slices.IndexFunc(s.unresolved, func(o orderclose.Order) bool { return s.lastFailed[o.ID].verdict != orderclose.Failed })
	if unknown >= 0 {
		return fmt.Errorf("%d orders have no verdict, such as %q: %w", len(s.unresolved), s.unresolved[unknown].ID, s.lastErr)
	}
	for _, o := range s.unresolved {
		s.tally(orderclose.Outcome{OrderID: o.ID, Verdict: orderclose.Failed, Err: s.lastErr})
	}
	return nil
}

// again asks once more for the unresolved orders.
func (s *sweepRun) again(ctx context.Context) error {
	unresolved := s.unresolved
	s.unresolved, s.locked = nil, 0
	for page := range slices.Chunk(unresolved, s.o.PageSize) {
		if err := s.close(ctx, [][]orderclose.Order{page}); err != nil {
			return fmt.Errorf("close orders without a verdict: %w", err)
		}
	}
	return nil
}

// read reads the pages that are closed together, and adds them to the report. A page may be empty, but there is none at the end. next is the last order read.
func (s *sweepRun) read(ctx context.Context, last orderclose.Order) (pages [][]orderclose.Order, next orderclose.Order, err error) {
	for range pagesInParallel {
		page, err := s.o.Store.Overdue(ctx, s.r.Cutoff, last, s.o.PageSize)
		if err != nil {
			return nil, last, err
		}
		if len(page) == 0 {
			break
		}
		if err := s.cycle.add(page); err != nil {
			return nil, last, err
		}
		last = page[len(page)-1]
		if s.series {
			page = s.without(page)
		}
		if s.r.Found == 0 && len(page) > 0 {
			s.r.OldestDue = page[0].Due
		}
		s.r.Pages++
		s.r.Found += len(page)
		pages = append(pages, page)
	}
	return pages, last, nil
}

// without returns the page without the orders that the sweep leaves out.
func (s *sweepRun) without(page []orderclose.Order) []orderclose.Order {
	return slices.DeleteFunc(slices.Clone(page), s.skip)
}

// close closes pages concurrently and adds the outcomes to the report, in the order
// of the pages. Orders without a verdict, and locked ones, are kept for a retry. The error is ctx's.
func (s *sweepRun) close(ctx context.Context, pages [][]orderclose.Order) error {
	left := make([][]orderclose.Order, 0, len(pages))
	for _, page := range pages {
		if page = s.without(page); len(page) > 0 {
			left = append(left, page)
		}
	}
	pages = left
	s.asked = time.Now()
	outcomes := make([][]orderclose.Outcome, len(pages))
	failures := make([]error, len(pages))
	var transactions sync.WaitGroup
	for i, page := range pages {
		transactions.Go(func() { outcomes[i], failures[i] = s.closePage(ctx, page) })
	}
	transactions.Wait()
	for i, page := range pages {
		s.lastErr = cmp.Or(failures[i], s.lastErr)
		if s.silent++; !errors.Is(failures[i], bisect.ErrNoVerdicts) {
			s.silent = 0
		}
		s.count(ctx, page, outcomes[i])
	}
	return ctx.Err()
}

// closePage closes a page. Orders of a category that is known to be paused have that verdict without being asked about.
func (s *sweepRun) closePage(ctx context.Context, page []orderclose.Order) ([]orderclose.Outcome, error) {
	outcomes := make([]orderclose.Outcome, len(page))
	var requests []orderclose.CloseRequest
	var at []int // their indexes
	for i, o := range page {
		if s.paused.has(o.Category, s.asked) { //mutant:sweep-asks-paused
			outcomes[i] = orderclose.Outcome{OrderID: o.ID, Verdict: orderclose.Paused}
			continue
		}
		requests = append(requests, orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due, Category: o.Category})
		at = append(at, i)
	}
	if len(requests) == 0 {
		return outcomes, nil
	}
	if err := s.limiter.WaitN(ctx, len(requests)); err != nil {
		return outcomes, err
	}
	closed, err := s.culprits.Close(ctx, s.o.Store, orderclose.PathSweep, requests)
	for i, o := range closed {
		outcomes[at[i]] = o
	}
	return outcomes, err
}

// count counts the outcomes of a page, and looks up why its closed orders were
// missed.
func (s *sweepRun) count(ctx context.Context, page []orderclose.Order, outcomes []orderclose.Outcome) {
	decided, missed := 0, make([]orderclose.Order, 0, len(page))
	for i, o := range outcomes {
		locked := o.Verdict == orderclose.Contended && !s.lastCall && s.locked < maxRemembered
		if locked {
			s.locked++
			s.metrics.Verdict(o.Verdict)
		}
		if locked || o.Verdict == "" {
			s.unresolved = append(s.unresolved, page[i]) //mutant:unresolved-forgotten
			continue
		}
		if s.tally(o); o.Verdict != orderclose.Paused {
			decided++
		}
		if o.Verdict == orderclose.Paused && s.o.PausesCategories { //mutant:one-pauses-category
			s.paused.met(page[i].Category, s.asked)
		}
		if o.Verdict == orderclose.Closed {
			s.metrics.Lateness(s.o.Logger, page[i].Category, "", o)
			missed = append(missed, page[i])
		}
	}
	switch {
	case s.o.Alone:
		return
	case !s.series: // sweeps of a series try an order again that another sweep of it could not close
		s.metrics.Missed(notClosed, decided-len(missed))
	}
	s.explain(ctx, missed)
}

// tally counts one outcome.
func (s *sweepRun) tally(o orderclose.Outcome) {
	s.metrics.Verdict(o.Verdict)
	s.r.count(o, s.note(o))
	s.resting.tried(o, s.r.StartedAt, s.series)
}

// failing is an order that sweeps could not close.
type failing struct {
	Failure
	verdict orderclose.Verdict
	logged  time.Time // by the database's clock
}

// renameAfter is the time after which a failure is logged again.
const renameAfter = time.Hour

// note remembers an order that could not be closed. It logs the first order of each cause: once, and again if what was found
// differs, if that order fails no more, and after renameAfter. A pending payment is no failure.
func (s *sweepRun) note(o orderclose.Outcome) Failure {
	cause, why := o.Why()
	if why == "" || o.Verdict == orderclose.PaymentPending {
		return Failure{}
	}
	f := failing{Failure{OrderID: o.OrderID, Cause: string(cause), Error: why, Times: 1, Since: s.r.StartedAt.UTC()}, o.Verdict, s.r.StartedAt}
	if before, known := s.lastFailed[o.OrderID]; known {
		f.Times, f.Since = before.Times+1, before.Since
	}
	if len(s.failed) < maxRemembered {
		s.failed[o.OrderID] = f
	}
	named := s.named[cause]
	_, stays := s.lastFailed[named.OrderID]
	_, now := s.failed[named.OrderID]
	differs := named.OrderID == o.OrderID && named.Error != f.Error
	if !stays && !now || differs || s.r.StartedAt.Sub(named.logged) >= renameAfter { //mutant:failure-named-always
		s.named[cause] = f
		s.o.Logger.Warn("order not closed", "order", o.OrderID, "cause", cause, "detail", why, "times", f.Times, "since", f.Since)
	}
	return f.Failure
}

// explain looks up why orders that were just closed had been missed.
func (s *sweepRun) explain(ctx context.Context, missed []orderclose.Order) {
	if len(missed) == 0 {
		return
	}
	if s.o.Investigator != nil && !s.begun {
		s.begun = true
		var err error
		if s.investigation, err = call(ctx, s.calls, "Investigator.Begin", s.o.Investigator.Begin); err != nil {
			s.investigation = nil
			s.o.Logger.Warn("cause lookup failed, causes of missed orders stay unknown", "err", err)
		}
	}
	if s.investigation == nil {
		s.metrics.Missed(Unknown, len(missed))
		return
	}
	misses, err := call(ctx, s.calls, "Investigation.Explain", func(ctx context.Context) ([]Miss, error) {
		return s.investigation.Explain(ctx, missed), nil
	})
	if err != nil {
		s.investigation = nil // it may hang still
		s.metrics.Missed(Unknown, len(missed))
		return
	}
	if s.o.Missed != nil {
		_ = s.calls.watched("Options.Missed", func() error { s.o.Missed(misses); return nil }) // logged; the orders are closed
	}
	for _, m := range misses {
		s.metrics.Missed(m.Cause, 1)
		if s.r.Causes == nil {
			s.r.Causes = map[string]int{}
		}
		s.r.Causes[string(m.Cause)]++
		if len(s.r.Misses) < maxMisses {
			s.r.Misses = append(s.r.Misses, m)
		}
	}
}

// progress reports how far the sweep has come.
func (s *sweepRun) progress(last orderclose.Order) {
	s.r.TookMillis = time.Since(s.began).Milliseconds()
	if s.o.Progress != nil {
		_ = s.calls.watched("Options.Progress", func() error { s.o.Progress(*s.r); return nil }) // logged; the sweep goes on
	}
	if time.Since(s.logged) < progressInterval {
		return
	}
	s.logged = time.Now()
	s.o.Logger.Info("sweeping", "found", s.r.Found, "closed", s.r.Closed, "failed", s.r.Failed,
		"orders_per_second", int(float64(s.r.Found)/max(time.Since(s.began).Seconds(), .001)), "due_up_to", last.Due.UTC())
}
