package compensator

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"orderclose"
)

const (
	// maxFailures bounds how many failed orders a report names; all are counted.
	maxFailures = 100
	// maxMisses bounds how many missed orders a report names; all are counted.
	maxMisses = 100
)

// Report tells what one sweep found and did. Its JSON is what
// "orderclose compensate --once -o json" prints.
type Report struct {
	StartedAt  time.Time `json:"started_at"` // database clock
	Cutoff     time.Time `json:"cutoff"`     // what was due at or before it was swept
	TookMillis int64     `json:"took_ms"`
	DryRun     bool      `json:"dry_run"`
	// Lock is "held"; "unavailable" if Redis could not be asked; "stuck" if its key was
	// left there by no process; "none" if none was wanted, as in a dry run.
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
	Lost int `json:"lost,omitempty"`
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
		fields = append(fields, slog.Int("lost", r.Lost))
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
	case orderclose.PaymentPending: // left to their next try
		r.PaymentPending++
	default:
		r.Failed++
		if len(r.Failures) < maxFailures {
			r.Failures = append(r.Failures, Failure{o.OrderID, fmt.Sprintf("%s: %v", o.Verdict, o.Err)})
		}
	}
}
