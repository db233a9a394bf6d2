package compensator

import (
	"log/slog"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// maxFailures limits the failed orders that a report and a record name; all are counted.
const maxFailures = 100

// renameAfter is the time after which a failure is logged again.
const renameAfter = time.Hour

// Report is the result of a pass by hand. "orderclose compensate -o json" prints its JSON.
type Report struct {
	StartedAt  time.Time `json:"started_at"` // by the database's clock
	Cutoff     time.Time `json:"cutoff"`     // orders due at or before this time were swept
	TookMillis int64     `json:"took_ms"`
	DryRun     bool      `json:"dry_run"`
	// Found is the number of orders that were overdue and unpaid when they were
	// read. Each is counted in one of the verdicts below, except in a dry run and in a
	// pass that ended with an error.
	Found         int `json:"found"`
	Closed        int `json:"closed"`
	AlreadyPaid   int `json:"already_paid"`
	AlreadyClosed int `json:"already_closed"`
	NotDue        int `json:"not_due"`
	// Excluded is the number of orders that the configuration has excluded since they were read.
	Excluded int `json:"excluded"`
	// Paused is the number of orders whose category is paused.
	Paused int `json:"paused"`
	// PaymentPending is the number of orders for which the payment provider cannot
	// say yet whether they are paid.
	PaymentPending int `json:"payment_pending"`
	// Failed also counts orders with the verdicts contended and not_found.
	Failed    int       `json:"failed"`
	Failures  []Failure `json:"failures,omitempty"`  // the first hundred of Failed
	OldestDue time.Time `json:"oldest_due,omitzero"` // the due time of the first order found; zero: none was found
}

// Failure is an order that could not be closed: its id, its orderclose.FailureCause, the cause in a sentence, and how often
// this process has failed to close it, since when.
type Failure = wire.Failure

// Took returns how long the pass took.
func (r Report) Took() time.Duration { return time.Duration(r.TookMillis) * time.Millisecond }

// LogValue returns a group of the most important fields.
func (r Report) LogValue() slog.Value {
	fields := []slog.Attr{
		slog.Int("found", r.Found), slog.Int("closed", r.Closed), slog.Int("failed", r.Failed),
		slog.Bool("dry_run", r.DryRun), slog.Duration("took", r.Took()),
	}
	if r.PaymentPending > 0 {
		fields = append(fields, slog.Int("payment_pending", r.PaymentPending))
	}
	if r.Paused > 0 {
		fields = append(fields, slog.Int("paused", r.Paused))
	}
	return slog.GroupValue(fields...)
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
	case orderclose.Excluded:
		r.Excluded++
	case orderclose.Paused:
		r.Paused++
	case orderclose.PaymentPending: // the loop tries it again
		r.PaymentPending++
	default:
		r.Failed++
		if cause, why := o.Why(); len(r.Failures) < maxFailures {
			r.Failures = append(r.Failures, Failure{OrderID: o.OrderID, Cause: string(cause), Error: why, Times: 1, Since: r.StartedAt.UTC()})
		}
	}
}

// causes has when a failure of each cause was logged last.
type causes map[string]time.Time

// first reports whether a failure is to be logged: it is the first of its cause, or the last one was logged renameAfter ago.
func (c causes) first(f Failure, now time.Time) bool {
	if at, known := c[f.Cause]; known && now.Sub(at) < renameAfter {
		return false
	}
	c[f.Cause] = now
	return true
}
