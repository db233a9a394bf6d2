// Package audit compares, for the orders that were due in a window of time, what the
// database says of each with its receipt, the stock ledger, its event, and Kafka.
// It changes nothing and locks nothing.
//
//	audit.go   one run: what is read, in which order
//	judge.go   what one order should look like (pure)
//	kafka.go   what Kafka and the outbox tell
//	hashes.go  a set of ids in 8 bytes each
//
// Orders stream by in pages, by due time and id, each with what belongs to it as
// of one moment; findings are told as they come. What is kept in memory is 8 bytes of
// each event and of each record of the close topic since the window began, and the
// dead letters that are pending.
//
// It cannot know everything. Topics keep a week: of closes from before what is left
// of them it is not asked whether an event tells of them, or a record had come; how
// many that are is said. An order whose row was deleted is not seen, nor one whose
// status is NULL. Orders of a status that a mapping does not name are judged as what a
// close takes them for, and the status is named.
package audit

import (
	"context"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/store"
)

// pageSize is how many orders are compared at a time.
const pageSize = 500

// Store is the database; store.Store is one.
type Store interface {
	Now(ctx context.Context) (time.Time, error)
	AuditRules() store.AuditRules
	AuditParts(ctx context.Context) ([]store.AuditPart, error)
	AuditPage(ctx context.Context, part store.AuditPart, from, to time.Time, after orderclose.Order, limit int) ([]store.AuditRow, error)
	Outgoing(ctx context.Context, each func(orderID string)) error
}

// Options for Run. Store, From, To and Bound must be set.
type Options struct {
	Store Store
	Log   Log // nil: Kafka is not asked
	// From and To are the window of due times, [From, To).
	From, To time.Time
	// Bound is how long an order that is due may be open: the sweep's period and grace,
	// two minutes, and what a sweep takes.
	Bound time.Duration
	// Receipts: closing is done in this database, and leaves receipts, ledger rows and
	// events there.
	Receipts bool

	EventsTopic, CloseTopic, ReplayTopic, DeadLetterTopic string

	// Found is called with each finding as it comes; its error ends the audit.
	Found func(Finding) error
	// Progress, if not nil, hears how many of all steps are done, and what is done
	// now.
	Progress func(done, total int64, now string)
}

// Summary is what an audit has seen.
type Summary struct {
	From  time.Time `json:"from"` // due times
	To    time.Time `json:"to"`
	At    time.Time `json:"at"` // when it began, by the database's clock
	Bound string    `json:"bound"`

	Orders   int            `json:"orders"` // due in the window
	Statuses map[string]int `json:"statuses"`
	// Unlisted are the statuses that orders have and the mapping does not name, each with
	// what it counts as: paid or other.
	Unlisted map[string]store.AuditState `json:"unlisted"`
	// ClosedBy counts those that have a receipt by the way they came; sweep is what the
	// pipeline missed.
	ClosedBy map[orderclose.Path]int `json:"closed_by"`
	// ClosedByOthers are closed without a receipt.
	ClosedByOthers  int `json:"closed_by_others"`
	OpenWithinBound int `json:"open_within_bound"`
	// NoRecord were closed, and no record of theirs is in the close topic or in the
	// replay topic: never published, or closed before their record left its bucket.
	NoRecord int `json:"no_record"`
	// DeadLetters are orders of the window that have a pending one, DeadLettersAll all
	// that are pending.
	DeadLetters    int `json:"dead_letters"`
	DeadLettersAll int `json:"dead_letters_all"`
	// EventsUnjudged were closed when events are not known of any more, or yet.
	EventsUnjudged int   `json:"events_unjudged"`
	EventsRead     int64 `json:"events_read"`
	RecordsRead    int64 `json:"records_read"`

	Findings map[Kind]int `json:"findings"`
	Found    int          `json:"found"`
	// Unseen says what could not be looked at, and why.
	Unseen     []string `json:"unseen"`
	TookMillis int64    `json:"took_ms"`
}

// audit is one run.
type audit struct {
	o     Options
	rules store.AuditRules
	sum   Summary
	told  told
	done  int64 // steps
	total int64
}

// Run compares. The error is the database's, or the context's, or that of Found; what
// Kafka does not tell is in Unseen.
func Run(ctx context.Context, o Options) (Summary, error) {
	began := time.Now()
	a := &audit{o: o, rules: o.Store.AuditRules(), sum: Summary{
		From: o.From.UTC(), To: o.To.UTC(), Bound: o.Bound.String(),
		Statuses: map[string]int{}, Unlisted: map[string]store.AuditState{}, ClosedBy: map[orderclose.Path]int{}, Findings: map[Kind]int{}, Unseen: []string{},
	}}
	err := a.run(ctx)
	a.sum.TookMillis = time.Since(began).Milliseconds()
	return a.sum, err
}

func (a *audit) run(ctx context.Context) (err error) {
	if a.sum.At, err = a.o.Store.Now(ctx); err != nil {
		return err
	}
	parts, err := a.o.Store.AuditParts(ctx)
	if err != nil {
		return err
	}
	a.total = int64(len(parts)+1) * percent
	if err := a.listen(ctx); err != nil {
		return err
	}
	for i, part := range parts {
		if part.Unlisted {
			a.sum.Unlisted[part.Status] = part.State
		}
		a.done = int64(i+1) * percent
		if err := a.part(ctx, part); err != nil {
			return err
		}
	}
	a.done = a.total
	a.progress("")
	return nil
}

// percent is how many steps of progress a part has.
const percent = 100

func (a *audit) progress(now string) {
	if a.o.Progress != nil {
		a.o.Progress(a.done, a.total, now)
	}
}

// part goes through the orders of one table that have one status.
func (a *audit) part(ctx context.Context, part store.AuditPart) error {
	begun := a.done
	var last orderclose.Order
	for {
		page, err := a.o.Store.AuditPage(ctx, part, a.o.From, a.o.To, last, pageSize)
		if err != nil {
			return err
		}
		for _, r := range page {
			if r.Due.Before(a.o.From) || !r.Due.Before(a.o.To) {
				continue // the column is coarser than the window
			}
			if err := a.order(r); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		last = page[len(page)-1].Order
		a.done = begun + int64(percent*float64(last.Due.Sub(a.o.From))/float64(a.o.To.Sub(a.o.From)))
		a.progress(fmt.Sprintf("%d orders, %d findings", a.sum.Orders, a.sum.Found))
	}
}

// order judges one order.
func (a *audit) order(r store.AuditRow) error {
	f := a.facts(r)
	seen, known := a.told.seen(r)
	a.sum.count(r, f, seen, known)
	for _, finding := range judge(r, f) {
		a.sum.Found++
		a.sum.Findings[finding.Kind]++
		if err := a.o.Found(finding); err != nil {
			return err
		}
	}
	return nil
}
