package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/partition"
)

// notClosed stands in for the cause of what the sweep found and did not close either.
const notClosed Cause = "not_closed"

// pagesAtOnce is how many pages are closed at the same time: two transactions keep
// one database server busy (make bench-close).
const pagesAtOnce = 2

const (
	// maxSilent pages in a row on which nobody gets a verdict end a sweep: with that many
	// the store is down, rather than one page at fault.
	maxSilent = 3
	// silentPause is how long a sweep waits after such a page: longer than a circuit
	// breaker stays open (5 s).
	silentPause = 6 * time.Second
	// maxLeft is how many pages of orders without a verdict a sweep keeps in memory, to
	// try them again at its end.
	maxLeft = 10
	// maxAgain is how often they are tried again with nothing gained.
	maxAgain = 3
	// maxRemembered bounds how many failed orders are remembered from a sweep to the next.
	maxRemembered = 1000
)

// progressEvery is how often a sweep under way says how far it is.
const progressEvery = 10 * time.Second

// sweeping is what one sweep works with.
type sweeping struct {
	*Compensator
	r      *Report
	why    Investigation // nil: nobody asks
	began  time.Time
	logged time.Time // when it last said how far it is
	silent int       // pages in a row on which nobody got a verdict
	left   []orderclose.Order
	last   error           // why the last of them got no verdict
	failed map[string]bool // orders that failed in this sweep
}

// sweep pages over what is overdue and closes it, and then notes that it was
// finished.
func (c *Compensator) sweep(ctx context.Context, r *Report) error {
	now, err := c.o.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("asking the database for its clock: %w", err)
	}
	r.StartedAt, r.Cutoff = now, now.Add(-c.o.Grace)
	s := &sweeping{Compensator: c, r: r, began: time.Now(), logged: time.Now(), failed: map[string]bool{}}
	if c.o.Investigator != nil && !r.DryRun {
		if s.why, err = c.o.Investigator.Begin(ctx); err != nil {
			s.why = nil
			c.o.Logger.Warn("nobody finds out why orders were missed", "err", err)
		}
	}
	if err := s.pages(ctx); err != nil || r.DryRun {
		return err
	}
	c.failed = s.failed
	return c.o.Log.SweepFinished(ctx, c.o.Name)
}

// pages goes over everything that is overdue, and begins where the sweep before gave
// up: whatever that one could not close must not keep the rest from being tried.
func (s *sweeping) pages(ctx context.Context) error {
	from := s.from
	if err := s.pass(ctx, from, time.Time{}); err != nil {
		return err
	}
	if !from.Due.IsZero() {
		if err := s.pass(ctx, orderclose.Order{}, from.Due); err != nil {
			return err
		}
	}
	if !s.r.DryRun {
		s.from = orderclose.Order{}
	}
	return s.again(ctx)
}

// pass goes on behind the last order of each page, whatever became of it: orders
// that cannot be closed hold up no other. It ends with the page that reaches until;
// zero: with the last one.
func (s *sweeping) pass(ctx context.Context, last orderclose.Order, until time.Time) error {
	for {
		pages, err := s.read(ctx, last)
		if err != nil {
			return fmt.Errorf("reading the page after %q: %w", last.ID, err)
		}
		if len(pages) == 0 {
			return nil
		}
		page := pages[len(pages)-1]
		last = page[len(page)-1]
		if !s.r.DryRun {
			if err := s.close(ctx, pages); err != nil {
				return fmt.Errorf("closing the pages up to %q: %w", last.ID, err)
			}
		}
		s.progress(last)
		if s.silent >= maxSilent || len(s.left) > maxLeft*s.o.PageSize {
			s.from = last // the next sweep goes on here
			return fmt.Errorf("%d orders up to %q have no verdict, the sweep is given up: %w", len(s.left), last.ID, s.last)
		}
		if s.silent > 0 {
			partition.Sleep(ctx, silentPause)
		}
		if !until.IsZero() && last.Due.After(until) {
			return nil
		}
	}
}

// again tries the orders that got no verdict again, now that the store has been asked
// for others, until that gains nothing any more. Those that failed in the last sweep
// too are counted as failed. Else the sweep is not finished.
func (s *sweeping) again(ctx context.Context) error {
	for tries := 0; len(s.left) > 0 && tries < maxAgain; {
		if tries > 0 {
			partition.Sleep(ctx, silentPause)
		}
		left := s.left
		s.left = nil
		for page := range slices.Chunk(left, s.o.PageSize) {
			if err := s.close(ctx, [][]orderclose.Order{page}); err != nil {
				return fmt.Errorf("closing orders that had no verdict: %w", err)
			}
		}
		if tries++; len(s.left) < len(left) {
			tries = 0
		}
	}
	unknown := slices.IndexFunc(s.left, func(o orderclose.Order) bool { return !s.Compensator.failed[o.ID] })
	if unknown >= 0 {
		return fmt.Errorf("%d orders have no verdict, among them %q: %w", len(s.left), s.left[unknown].ID, s.last)
	}
	for _, o := range s.left {
		s.tally(orderclose.Outcome{OrderID: o.ID, Verdict: orderclose.Failed, Err: s.last})
	}
	return nil
}

// read reads the next pages, as many as are closed at once, and adds them to the
// report.
func (s *sweeping) read(ctx context.Context, last orderclose.Order) (pages [][]orderclose.Order, err error) {
	for range pagesAtOnce {
		page, err := s.o.Store.Overdue(ctx, s.r.Cutoff, last, s.o.PageSize)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		if s.r.Found == 0 {
			oldest := page[0].Due
			s.r.OldestDue = &oldest
		}
		s.r.Pages++
		s.r.Found += len(page)
		last = page[len(page)-1]
		pages = append(pages, page)
	}
	return pages, nil
}

// close closes pages, at once, and adds what became of them to the report, in their
// order. Orders without a verdict are left for later. The error is ctx's.
func (s *sweeping) close(ctx context.Context, pages [][]orderclose.Order) error {
	outcomes := make([][]orderclose.Outcome, len(pages))
	failures := make([]error, len(pages))
	var transactions sync.WaitGroup
	for i, page := range pages {
		transactions.Go(func() { outcomes[i], failures[i] = s.closePage(ctx, page) })
	}
	transactions.Wait()
	for i, page := range pages {
		if failures[i] != nil {
			s.last = failures[i]
		}
		if s.silent++; !errors.Is(failures[i], closing.ErrSilent) {
			s.silent = 0
		}
		s.count(ctx, page, outcomes[i])
	}
	return ctx.Err()
}

func (s *sweeping) closePage(ctx context.Context, page []orderclose.Order) ([]orderclose.Outcome, error) {
	if err := s.limiter.WaitN(ctx, len(page)); err != nil {
		return make([]orderclose.Outcome, len(page)), err
	}
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
	}
	return s.culprits.CloseOrders(ctx, orderclose.PathSweep, requests)
}

// count counts what became of a page, and has it found out why it was missed.
func (s *sweeping) count(ctx context.Context, page []orderclose.Order, outcomes []orderclose.Outcome) {
	decided, missed := 0, make([]orderclose.Order, 0, len(page))
	for i, o := range outcomes {
		if o.Verdict == "" {
			s.left = append(s.left, page[i])
			continue
		}
		decided++
		s.tally(o)
		if o.Verdict == orderclose.Closed {
			s.o.Metrics.Lateness(orderclose.PathSweep, -o.Remaining())
			missed = append(missed, page[i])
		}
	}
	s.o.Metrics.Missed(notClosed, decided-len(missed))
	s.explain(ctx, missed)
}

// tally counts one outcome.
func (s *sweeping) tally(o orderclose.Outcome) {
	s.o.Metrics.Verdict(orderclose.PathSweep, o.Verdict)
	s.r.count(o)
	if o.Verdict == orderclose.Failed && len(s.failed) < maxRemembered {
		s.failed[o.OrderID] = true
	}
}

// explain has it found out why orders were missed that were closed just now.
func (s *sweeping) explain(ctx context.Context, missed []orderclose.Order) {
	if s.why == nil || len(missed) == 0 {
		s.o.Metrics.Missed(Unknown, len(missed))
		return
	}
	misses := s.why.Explain(ctx, missed)
	if s.o.Missed != nil {
		s.o.Missed(misses)
	}
	for _, m := range misses {
		s.o.Metrics.Missed(m.Cause, 1)
		if s.r.Causes == nil {
			s.r.Causes = map[string]int{}
		}
		s.r.Causes[string(m.Cause)]++
		if len(s.r.Misses) < maxMisses {
			s.r.Misses = append(s.r.Misses, m)
		}
	}
}

// progress tells how far the sweep has come.
func (s *sweeping) progress(last orderclose.Order) {
	s.r.TookMillis = time.Since(s.began).Milliseconds()
	if s.o.Progress != nil {
		s.o.Progress(*s.r)
	}
	if time.Since(s.logged) < progressEvery {
		return
	}
	s.logged = time.Now()
	s.o.Logger.Info("sweeping", "found", s.r.Found, "closed", s.r.Closed, "failed", s.r.Failed,
		"orders a second", int(float64(s.r.Found)/max(time.Since(s.began).Seconds(), .001)), "due up to", last.Due.UTC())
}
