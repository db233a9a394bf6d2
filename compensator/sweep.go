package compensator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"orderclose"
	"orderclose/internal/closing"
)

// maxFailures bounds how many failed orders a report names; all are counted.
const maxFailures = 100

// maxMisses does the same for the orders that were missed.
const maxMisses = 100

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
	return slog.GroupValue(
		slog.Int("found", r.Found), slog.Int("closed", r.Closed), slog.Int("failed", r.Failed),
		slog.Bool("dry_run", r.DryRun), slog.String("lock", r.Lock), slog.Duration("took", r.Took()))
}

// sweep pages over what is overdue and closes it.
func (c *Compensator) sweep(ctx context.Context, dryRun bool, lock string) (Report, error) {
	began := time.Now()
	r := Report{DryRun: dryRun, Lock: lock}
	err := c.pages(ctx, &r)
	r.TookMillis = time.Since(began).Milliseconds()
	return r, err
}

func (c *Compensator) pages(ctx context.Context, r *Report) error {
	now, err := c.o.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("asking the database for its clock: %w", err)
	}
	r.StartedAt, r.Cutoff = now, now.Add(-c.o.Grace)
	look := c.investigate(ctx, r.DryRun)
	var last orderclose.Order
	for {
		page, err := c.o.Store.Overdue(ctx, r.Cutoff, last, c.o.PageSize)
		if err != nil {
			return fmt.Errorf("reading the page after %q: %w", last.ID, err)
		}
		if len(page) == 0 {
			return nil
		}
		if r.Found == 0 {
			r.OldestDue = &page[0].Due
		}
		r.Pages++
		r.Found += len(page)
		last = page[len(page)-1]
		if !r.DryRun {
			if err := c.closePage(ctx, page, look, r); err != nil {
				return fmt.Errorf("closing the page up to %q: %w", last.ID, err)
			}
		}
	}
}

func (c *Compensator) closePage(ctx context.Context, page []orderclose.Order, look Investigation, r *Report) error {
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
	}
	outcomes, err := closing.Bisect(ctx, c.o.Store, orderclose.PathSweep, requests)
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		c.o.Metrics.Verdict(orderclose.PathSweep, o.Verdict)
		if o.Verdict == orderclose.Closed {
			c.o.Metrics.Lateness(orderclose.PathSweep, -o.Remaining())
		}
		r.count(o)
	}
	r.explain(ctx, look, closed(page, outcomes))
	return nil
}

// investigate begins to ask why, if anybody does. A sweep does not rest on it.
func (c *Compensator) investigate(ctx context.Context, dryRun bool) Investigation {
	if c.o.Investigator == nil || dryRun {
		return nil
	}
	look, err := c.o.Investigator.Begin(ctx)
	if err != nil {
		c.o.Logger.Warn("nobody finds out why orders were missed", "err", err)
		return nil
	}
	return look
}

// closed are the orders of the page that this sweep has closed. Outcomes are in
// the order of the page.
func closed(page []orderclose.Order, outcomes []orderclose.Outcome) []orderclose.Order {
	var missed []orderclose.Order
	for i, o := range outcomes {
		if o.Verdict == orderclose.Closed {
			missed = append(missed, page[i])
		}
	}
	return missed
}

// explain adds why orders were missed to the report.
func (r *Report) explain(ctx context.Context, look Investigation, missed []orderclose.Order) {
	if look == nil || len(missed) == 0 {
		return
	}
	if r.Causes == nil {
		r.Causes = map[string]int{}
	}
	misses := look.Explain(ctx, missed)
	for _, m := range misses {
		r.Causes[string(m.Cause)]++
	}
	r.Misses = append(r.Misses, misses[:min(len(misses), maxMisses-len(r.Misses))]...)
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
