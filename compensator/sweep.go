package compensator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"orderclose"
	"orderclose/internal/closing"
)

// maxFailures bounds how many failed orders a report names; all are counted.
const maxFailures = 100

// maxMisses bounds how many missed orders a report names; all are counted.
const maxMisses = 100

// notClosed stands in for the cause of what the sweep found and did not close either.
const notClosed Cause = "not_closed"

// pagesAtOnce is how many pages are closed at the same time: two transactions keep
// one database server busy (make bench-close).
const pagesAtOnce = 2

// progressEvery is how often a sweep under way says how far it is.
const progressEvery = 10 * time.Second

// Report tells what one sweep found and did. Its JSON is what
// "orderclose compensate --once -o json" prints.
type Report struct {
	StartedAt  time.Time `json:"started_at"` // database clock
	Cutoff     time.Time `json:"cutoff"`     // what was due at or before it was swept
	TookMillis int64     `json:"took_ms"`
	DryRun     bool      `json:"dry_run"`
	// Lock is "held"; "unavailable" if Redis could not be asked; "none" if none was
	// wanted, as in a dry run.
	Lock string `json:"lock"`
	// Found orders were overdue and unpaid when their page was read. Each is counted
	// in one of the verdicts, except in a dry run.
	Found         int `json:"found"`
	Pages         int `json:"pages"`
	Closed        int `json:"closed"`
	AlreadyPaid   int `json:"already_paid"`
	AlreadyClosed int `json:"already_closed"`
	NotDue        int `json:"not_due"`
	// PaymentPending orders wait for the payment provider to say whether they are paid.
	PaymentPending int       `json:"payment_pending"`
	Failed         int       `json:"failed"`
	Failures       []Failure `json:"failures,omitempty"` // the first hundred
	// Causes counts what this sweep closed by why the pipeline had not; absent if
	// nobody asked.
	Causes map[string]int `json:"causes,omitempty"`
	Misses []Miss         `json:"misses,omitempty"` // the first hundred
	// OldestDue is the due time of the first order found; absent if none was.
	OldestDue *time.Time `json:"oldest_due,omitempty"`
	// Lost is how many records told of a loss, if that is why it was swept.
	// ScheduledAgain is how many orders then were, those due up to ScheduledUntil;
	// Unschedulable those that cannot be.
	Lost           int        `json:"lost,omitempty"`
	ScheduledAgain int        `json:"scheduled_again,omitempty"`
	ScheduledUntil *time.Time `json:"scheduled_until,omitempty"`
	Unschedulable  int        `json:"unschedulable,omitempty"`
}

// Failure is an order that the sweep could not close.
type Failure struct {
	OrderID string `json:"order_id"`
	Error   string `json:"error"`
}

// Took is how long the sweep took.
func (r Report) Took() time.Duration { return time.Duration(r.TookMillis) * time.Millisecond }

// LogValue writes the report as a group of a few fields.
func (r Report) LogValue() slog.Value {
	fields := []slog.Attr{
		slog.Int("found", r.Found), slog.Int("closed", r.Closed), slog.Int("failed", r.Failed),
		slog.Bool("dry_run", r.DryRun), slog.String("lock", r.Lock), slog.Duration("took", r.Took()),
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Causes)) {
		fields = append(fields, slog.Int(cause, r.Causes[cause]))
	}
	if r.Lost > 0 {
		fields = append(fields, slog.Int("lost", r.Lost), slog.Int("scheduled_again", r.ScheduledAgain))
	}
	return slog.GroupValue(fields...)
}

// sweeping is what one sweep works with.
type sweeping struct {
	*Compensator
	r      *Report
	why    Investigation // nil: nobody asks
	began  time.Time
	logged time.Time // when it last said how far it is
}

// sweep pages over what is overdue and closes it, and then notes that it was
// finished.
func (c *Compensator) sweep(ctx context.Context, r *Report) error {
	now, err := c.o.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("asking the database for its clock: %w", err)
	}
	r.StartedAt, r.Cutoff = now, now.Add(-c.o.Grace)
	s := &sweeping{Compensator: c, r: r, began: time.Now(), logged: time.Now()}
	if c.o.Investigator != nil && !r.DryRun {
		if s.why, err = c.o.Investigator.Begin(ctx); err != nil {
			s.why = nil
			c.o.Logger.Warn("nobody finds out why orders were missed", "err", err)
		}
	}
	if err := s.pages(ctx); err != nil || r.DryRun {
		return err
	}
	return c.o.Log.SweepFinished(ctx, c.o.Name)
}

// pages goes on behind the last order of each page, whatever became of it: orders
// that cannot be closed hold up no other, and are tried once.
func (s *sweeping) pages(ctx context.Context) error {
	var last orderclose.Order
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
	}
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
// order; of those that were closed also if another could not be.
func (s *sweeping) close(ctx context.Context, pages [][]orderclose.Order) error {
	outcomes := make([][]orderclose.Outcome, len(pages))
	var transactions errgroup.Group
	for i, page := range pages {
		transactions.Go(func() (err error) {
			outcomes[i], err = s.closePage(ctx, page)
			return err
		})
	}
	err := transactions.Wait()
	for i, page := range pages {
		if outcomes[i] != nil {
			s.count(ctx, page, outcomes[i])
		}
	}
	return err
}

func (s *sweeping) closePage(ctx context.Context, page []orderclose.Order) ([]orderclose.Outcome, error) {
	if err := s.limiter.WaitN(ctx, len(page)); err != nil {
		return nil, err
	}
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
	}
	return closing.Bisect(ctx, s.o.Store, orderclose.PathSweep, requests)
}

// count counts what became of a page, and has it found out why it was missed.
func (s *sweeping) count(ctx context.Context, page []orderclose.Order, outcomes []orderclose.Outcome) {
	closed := map[string]bool{}
	for _, o := range outcomes {
		s.o.Metrics.Verdict(orderclose.PathSweep, o.Verdict)
		if o.Verdict == orderclose.Closed {
			s.o.Metrics.Lateness(orderclose.PathSweep, -o.Remaining())
			closed[o.OrderID] = true
		}
		s.r.count(o)
	}
	s.o.Metrics.Missed(notClosed, len(page)-len(closed))
	s.explain(ctx, slices.DeleteFunc(page, func(o orderclose.Order) bool { return !closed[o.ID] }))
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

// count adds one outcome to the report.
func (r *Report) count(o orderclose.Outcome) {
	switch o.Verdict {
	case orderclose.Closed:
		r.Closed++
	case orderclose.AlreadyPaid:
		r.AlreadyPaid++
	case orderclose.AlreadyClosed:
		r.AlreadyClosed++
	case orderclose.NotDue:
		r.NotDue++
	case orderclose.PaymentPending: // left to their next try
		r.PaymentPending++
	default:
		r.Failed++
		if len(r.Failures) < maxFailures {
			r.Failures = append(r.Failures, Failure{o.OrderID, fmt.Sprintf("%s: %v", o.Verdict, o.Err)})
		}
	}
}
