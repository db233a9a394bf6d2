package compensator

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxFailures limits the failed orders that a report names; all are counted.
	maxFailures = 100
	// maxMisses limits the missed orders that a report names; all are counted.
	maxMisses = 100
)

// Report is the result of one sweep. "orderclose compensate --once -o json" prints
// its JSON.
type Report struct {
	StartedAt  time.Time `json:"started_at"` // by the database's clock
	Cutoff     time.Time `json:"cutoff"`     // orders due at or before this time were swept
	TookMillis int64     `json:"took_ms"`
	DryRun     bool      `json:"dry_run"`
	// Lock is "held"; "unavailable" if its server did not answer or gave none; "stuck" if no process
	// holds the lock's key; "none" without a lock, as in a dry run.
	Lock string `json:"lock"`
	// Found is the number of orders that were overdue and unpaid when their page was
	// read. Each is counted in one of the verdicts below, except in a dry run and in a
	// sweep that ended with an error.
	Found         int `json:"found"`
	Pages         int `json:"pages"`
	Closed        int `json:"closed"`
	AlreadyPaid   int `json:"already_paid"`
	AlreadyClosed int `json:"already_closed"`
	NotDue        int `json:"not_due"`
	// Excluded is the number of orders that the configuration has excluded since their page was read.
	Excluded int `json:"excluded"`
	// Paused is the number of orders whose category is paused.
	Paused int `json:"paused"`
	// PaymentPending is the number of orders for which the payment provider cannot
	// say yet whether they are paid.
	PaymentPending int `json:"payment_pending"`
	// Failed also counts orders with the verdicts contended and not_found.
	Failed   int       `json:"failed"`
	Failures []Failure `json:"failures,omitempty"` // the first hundred of Failed
	// Causes counts the orders that this sweep closed by why the pipeline had missed
	// them; absent without an Investigator.
	Causes    map[string]int `json:"causes,omitempty"`
	Misses    []Miss         `json:"misses,omitempty"`    // the first hundred
	OldestDue time.Time      `json:"oldest_due,omitzero"` // the due time of the first order found; zero: none was found
}

// Failure is an order that the sweep could not close: its id, its orderclose.FailureCause, the cause in a sentence, and how many sweeps
// of this process in a row have failed to close it, since when.
type Failure = wire.Failure

// Took returns how long the sweep took.
func (r Report) Took() time.Duration { return time.Duration(r.TookMillis) * time.Millisecond }

// LogValue returns a group of the most important fields.
func (r Report) LogValue() slog.Value {
	fields := []slog.Attr{
		slog.Int("found", r.Found), slog.Int("closed", r.Closed), slog.Int("failed", r.Failed),
		slog.Bool("dry_run", r.DryRun), slog.String("lock", r.Lock), slog.Duration("took", r.Took()),
	}
	if r.PaymentPending > 0 {
		fields = append(fields, slog.Int("payment_pending", r.PaymentPending))
	}
	if r.Paused > 0 {
		fields = append(fields, slog.Int("paused", r.Paused))
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Causes)) {
		fields = append(fields, slog.Int(cause, r.Causes[cause]))
	}
	return slog.GroupValue(fields...)
}

// count adds one outcome to the report. f is its failure, if it failed.
func (r *Report) count(o orderclose.Outcome, f Failure) {
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
	case orderclose.PaymentPending: // retried by the next sweep
		r.PaymentPending++
	default:
		r.Failed++
		if len(r.Failures) < maxFailures {
			r.Failures = append(r.Failures, f)
		}
	}
}

// add adds the report of the next sweep of a series.
func (r *Report) add(next Report) {
	r.Cutoff = next.Cutoff
	r.TookMillis += next.TookMillis
	r.Found, r.Pages, r.Closed, r.AlreadyPaid = r.Found+next.Found, r.Pages+next.Pages, r.Closed+next.Closed, r.AlreadyPaid+next.AlreadyPaid
	r.AlreadyClosed, r.NotDue, r.Excluded = r.AlreadyClosed+next.AlreadyClosed, r.NotDue+next.NotDue, r.Excluded+next.Excluded
	r.Paused, r.PaymentPending, r.Failed = r.Paused+next.Paused, r.PaymentPending+next.PaymentPending, r.Failed+next.Failed
	r.Failures = append(r.Failures, next.Failures[:min(len(next.Failures), maxFailures-len(r.Failures))]...)
	for cause, n := range next.Causes {
		if r.Causes == nil {
			r.Causes = map[string]int{}
		}
		r.Causes[cause] += n
	}
}

// Cause is why the pipeline missed an order that a sweep found.
type Cause string

// The causes. A cause is looked up after the order was closed and does not affect the
// close.
const (
	Unpublished  Cause = "unpublished"   // its row is in the schedule outbox
	OnItsWay     Cause = "on_its_way"    // the relay or the closer is behind in a partition of the order
	DeadLettered Cause = "dead_lettered" // its record was given up and is a pending dead letter
	Unknown      Cause = "unknown"       // none of these, or it could not be looked up: the history of the order says more
)

// Causes returns all causes, in the order in which an order passes through the
// pipeline.
func Causes() []Cause {
	return []Cause{Unpublished, OnItsWay, DeadLettered, Unknown}
}

// Miss is an order that a sweep closed, and why the pipeline had missed it.
type Miss struct {
	orderclose.Order
	Cause Cause  `json:"cause"`
	Where string `json:"where,omitempty"` // a row of the outbox, a topic/partition or a dead letter; or why the cause is unknown
	Fix   string `json:"fix"`             // command that fixes the cause, or shows more
}

// Investigator finds out why the pipeline missed orders.
type Investigator interface {
	// Begin is called after a sweep has closed its first orders. A sweep that closes none does not call it.
	Begin(ctx context.Context) (Investigation, error)
}

// Investigation looks up the causes for one sweep. It belongs to the goroutine of the
// sweep.
type Investigation interface {
	// Explain is called after a page was closed, with the orders of the page that
	// this sweep closed. It returns one Miss for each, in the same order. It does not
	// fail: a cause that it cannot find is Unknown.
	Explain(ctx context.Context, missed []orderclose.Order) []Miss
}
