package shadow

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// ReportOptions for Report. All fields but Progress must be set.
type ReportOptions struct {
	Store ops.AuditStore
	Log   ops.Log
	Topic string // of the verdicts
	// From and To are the window of due times, [From, To).
	From, To time.Time
	// Tolerance is how far two times of a close may be apart and count as the same. An order that
	// was due less than this ago, and that one side has not closed yet, is not compared.
	Tolerance time.Duration
	// OnDifference is called with each order that the two sides treat differently, by one
	// goroutine. Its error ends the report.
	OnDifference func(Difference) error
	// Progress, if not nil, is called with the number of steps done, the number of all steps, and
	// a text about the current step.
	Progress func(done, total int64, step string)
}

// Summary compares what the shadow run would have done with what the old job did.
type Summary struct {
	From      time.Time `json:"from"` // window of due times
	To        time.Time `json:"to"`
	At        time.Time `json:"at"` // when the report began, by the database's clock
	Tolerance string    `json:"tolerance"`

	Orders  int           `json:"orders"` // due in the window
	Classes map[Class]int `json:"classes"`
	// Different is the number of orders that the two sides treat differently.
	Different int `json:"different"`
	// OnlyWe counts the orders of that class by their status, and OnlyThey by our verdict.
	OnlyWe   map[string]int `json:"only_we"`
	OnlyThey map[string]int `json:"only_they"`

	// TimesCompared is false if the mapping has no time of a close. Untimed counts the closed orders
	// whose time of the close is empty. They count as closed at the same time.
	TimesCompared bool `json:"times_compared"`
	Untimed       int  `json:"untimed"`

	// Verdicts is how many verdicts were read, from First to Last by the database's clock. Orders
	// that were due before the shadow run began, or while it did not run, have no verdict or a late
	// one.
	Verdicts   int64     `json:"verdicts"`
	First      time.Time `json:"first_verdict,omitzero"`
	Last       time.Time `json:"last_verdict,omitzero"`
	Unreadable int64     `json:"unreadable"` // records of the topic that are no verdicts
	TookMillis int64     `json:"took_ms"`
}

// report is one run of Report.
type report struct {
	o        ReportOptions
	sum      Summary
	facts    facts
	verdicts *compactVerdicts
	ops.DueWalk
}

// Report compares the verdicts of a shadow run with the statuses, and the times of a close,
// of the orders that were due in a window of time. It reads the verdicts that were appended since
// the window began, and then pages of orders by due time and id. It changes nothing. Memory holds 24
// bytes of each verdict on an order that was due before the end of the window.
//
// An order that is not in the database any more, whose status is NULL or that has no due time is not
// compared. The error is of the database, of Kafka, of the context, or of OnDifference.
func Report(ctx context.Context, o ReportOptions) (Summary, error) {
	began := time.Now()
	r := &report{o: o, verdicts: newVerdicts(), DueWalk: ops.DueWalk{From: o.From, To: o.To, Show: o.Progress}, sum: Summary{
		From: o.From.UTC(), To: o.To.UTC(), Tolerance: o.Tolerance.String(), TimesCompared: o.Store.AuditRules().ClosedAt,
		Classes: map[Class]int{}, OnlyWe: map[string]int{}, OnlyThey: map[string]int{},
	}}
	err := r.run(ctx)
	r.sum.TookMillis = time.Since(began).Milliseconds()
	return r.sum, err
}

func (r *report) run(ctx context.Context) (err error) {
	if r.sum.At, err = r.Begin(ctx, r.o.Store); err != nil {
		return err
	}
	r.facts = facts{now: r.sum.At, tolerance: r.o.Tolerance}
	if err := r.readVerdicts(ctx); err != nil {
		return err
	}
	return ops.WalkDue(&r.DueWalk, func(part store.AuditPart, after orderclose.Order, limit int) ([]store.ClosedRow, error) {
		return r.o.Store.ClosedPage(ctx, part, r.o.From, r.o.To, after, limit)
	}, func(row store.ClosedRow) orderclose.Order { return row.Order }, r.order, func() string {
		return fmt.Sprintf("%d orders, %d differences", r.sum.Orders, r.sum.Different)
	})
}

// readVerdicts reads the verdicts from the beginning of the window to the present end of the topic:
// an order may get its verdict long after its due time.
func (r *report) readVerdicts(ctx context.Context) error {
	spans, err := r.o.Log.Window(ctx, r.o.Topic, r.Since(), kafka.LogEnd)
	if err != nil {
		return err
	}
	all, read := kafka.TotalLen(spans), int64(0)
	for _, s := range spans {
		err := r.o.Log.ReadSpan(ctx, r.o.Topic, s, func(records []wire.RawRecord) error {
			for _, raw := range records {
				r.addVerdict(raw)
			}
			read += int64(len(records))
			r.Read(read, all, r.o.Topic)
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	r.verdicts.seal()
	return nil
}

func (r *report) addVerdict(raw wire.RawRecord) {
	var v Verdict
	m, err := raw.Message()
	if err == nil {
		v, err = DecodeVerdict(m.Value)
	}
	if err != nil {
		r.sum.Unreadable++
		return
	}
	if !v.Due.Before(r.o.To) {
		return
	}
	r.sum.Verdicts++
	if r.sum.First.IsZero() || v.At.Before(r.sum.First) {
		r.sum.First = v.At
	}
	if v.At.After(r.sum.Last) {
		r.sum.Last = v.At
	}
	r.verdicts.add(v)
}

// order compares one order.
func (r *report) order(part store.AuditPart, row store.ClosedRow) error {
	d := compare(row, part, r.verdicts.of(row.ID), r.facts)
	r.sum.Orders++
	r.sum.Classes[d.Class]++
	switch d.Class {
	case Same:
		if r.sum.TimesCompared && row.ClosedAt.IsZero() {
			r.sum.Untimed++
		}
		return nil
	case Neither, Recent:
		return nil
	case OnlyWe:
		r.sum.OnlyWe[d.Status]++
	case OnlyThey:
		r.sum.OnlyThey[d.reason()]++
	}
	r.sum.Different++
	return r.o.OnDifference(d)
}
