package deadletters

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/kafka/reads"
)

// MaxNamed bounds how many dead letters, or records of a replay, a plan or a result lists. All are counted.
const MaxNamed = 100

// Options for a redrive or a discard of the dead letters of a filter.
type Options struct {
	Filter Filter
	How    ResolutionKind   // Redriven or Discarded
	Rules  Rules            // only for a redrive
	Now    func() time.Time // the clock that due times are compared with; default time.Now
}

// Plan is what a redrive or a discard would do. It describes a snapshot: later dead letters do not change it.
type Plan struct {
	Topic string         `json:"topic"`
	How   ResolutionKind `json:"how"`
	// Through is the snapshot: the last offset of each partition. It is never nil. A Filter with it selects no later dead letter.
	Through []Position `json:"through"`
	Pending int        `json:"pending"` // dead letters that the plan is about
	ByCause Counts     `json:"by_cause"`
	// Later is the number of further dead letters of the filter, because a plan is about at most 100,000. They count under Other in
	// ByCause. A repetition of the plan is about them.
	Later int `json:"later,omitempty"`
	// To is the number of records to send, by topic; nil for a discard.
	To map[string]int `json:"to,omitempty"`
	// Refused is the number of dead letters that cannot be sent; Refusals lists the first.
	Refused  int       `json:"refused"`
	Refusals []Refusal `json:"refusals,omitempty"`
	// Missing are the requested positions that have no dead letter.
	Missing []Position `json:"missing,omitempty"`
	// Settled are the requested dead letters that are not pending.
	Settled []Position `json:"settled_before,omitempty"`
}

// Refusal is a dead letter that cannot be sent again, with the reason.
type Refusal struct {
	At    Position `json:"at"`
	Key   string   `json:"key"`
	Cause string   `json:"cause,omitempty"` // of a dead letter
	Why   string   `json:"why"`
}

// Doable returns how many dead letters the plan would resolve.
func (p Plan) Doable() int { return p.Pending - p.Refused }

// refuse adds a refusal.
func (p *Plan) refuse(l Letter, why string) {
	p.Refused++
	if len(p.Refusals) < MaxNamed {
		p.Refusals = append(p.Refusals, Refusal{l.At, l.Key, l.Cause, why})
	}
}

// MakePlan reads the topic and returns what Run would do. It changes nothing.
func (t *Topic) MakePlan(ctx context.Context, o Options) (Plan, error) {
	r, err := t.run(ctx, o, true, nil)
	return r.Plan, err
}

// prepare takes a snapshot and finds its pending dead letters.
func (t *Topic) prepare(ctx context.Context, o Options) (Plan, []reads.Span, *Index, error) {
	plan := Plan{Topic: t.Name, How: o.How, Through: []Position{}}
	spans, x, err := t.Index(ctx, o.Filter)
	if err != nil {
		return plan, nil, nil, err
	}
	for _, s := range spans {
		if last, ok := o.Filter.last(s.Partition); ok {
			plan.Through = append(plan.Through, Position{s.Partition, min(s.End-1, last)})
		}
	}
	plan.ByCause, plan.Later = x.Pending(), x.Unlisted()
	plan.Pending = plan.ByCause.Total() - plan.Later
	maps.DeleteFunc(plan.ByCause, func(_ string, n int) bool { return n == 0 })
	for _, at := range o.Filter.Positions {
		switch l, known := x.letters[at]; {
		case !known:
			plan.Missing = append(plan.Missing, at)
		case l.Resolution != "":
			plan.Settled = append(plan.Settled, at)
		}
	}
	slices.SortFunc(plan.Missing, comparePositions)
	return plan, spans, x, nil
}

func comparePositions(a, b Position) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}
