package deadletters

import (
	"context"
	"slices"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
)

// maxNamed bounds how many dead letters a plan or a result names; all are counted.
const maxNamed = 100

// Options say what to do with the dead letters of a filter.
type Options struct {
	Filter Filter
	How    orderclose.Settlement // Redriven or Discarded
	Rules  Rules                 // of a redrive
	Now    func() time.Time      // decides what is due; default time.Now
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// Plan is what a redrive or a discard would do. It is about a snapshot: later dead
// letters do not change it.
type Plan struct {
	Topic string                `json:"topic"`
	How   orderclose.Settlement `json:"how"`
	// Through is the snapshot: the last offset of each partition.
	Through []Place        `json:"through"`
	Pending int            `json:"pending"` // dead letters of the filter
	ByCause map[string]int `json:"by_cause"`
	// To is how many would be sent to which topic; nil for a discard.
	To map[string]int `json:"to,omitempty"`
	// Refused counts those that cannot be sent; Refusals are the first of them.
	Refused  int       `json:"refused"`
	Refusals []Refusal `json:"refusals,omitempty"`
	// Missing were asked for by their place, and are no dead letters of the topic.
	Missing []Place `json:"missing,omitempty"`
	// Settled were asked for by their place, and are not pending.
	Settled []Place `json:"settled_before,omitempty"`
}

// Refusal is a dead letter that cannot be sent again, and why.
type Refusal struct {
	At    Place  `json:"at"`
	Key   string `json:"key"`
	Cause string `json:"cause"`
	Why   string `json:"why"`
}

// Doable is how many dead letters the plan would settle.
func (p Plan) Doable() int { return p.Pending - p.Refused }

// refuse counts a refusal.
func (p *Plan) refuse(l Letter, why string) {
	p.Refused++
	if len(p.Refusals) < maxNamed {
		p.Refusals = append(p.Refusals, Refusal{l.At, l.Key, l.Cause, why})
	}
}

// MakePlan reads the topic and says what would be done. It changes nothing.
func (t *Topic) MakePlan(ctx context.Context, o Options) (Plan, error) {
	plan, spans, x, err := t.begin(ctx, o)
	if err != nil || o.How == orderclose.Discarded {
		return plan, err
	}
	now := o.now()
	plan.To = map[string]int{}
	err = t.Letters(ctx, spans, x, func(letters []Letter) error {
		for _, l := range letters {
			if l.Settle != "" {
				continue
			}
			if topic, _, refusal := o.Rules.decide(l, now); refusal != "" {
				plan.refuse(l, refusal)
			} else {
				plan.To[topic]++
			}
		}
		return nil
	})
	return plan, err
}

// begin takes the snapshot and finds what of it is pending.
func (t *Topic) begin(ctx context.Context, o Options) (Plan, []kafka.Span, *Index, error) {
	plan := Plan{Topic: t.Name, How: o.How, Through: []Place{}}
	spans, err := t.Snapshot(ctx, o.Filter)
	if err != nil {
		return plan, nil, nil, err
	}
	x, err := t.Index(ctx, spans, o.Filter)
	if err != nil {
		return plan, nil, nil, err
	}
	for _, s := range spans {
		last := s.End - 1
		if o.Filter.Through != nil {
			through, ok := o.Filter.Through[s.Partition]
			if !ok {
				continue
			}
			last = min(last, through)
		}
		plan.Through = append(plan.Through, Place{s.Partition, last})
	}
	plan.ByCause = map[string]int{}
	for cause, n := range x.Pending() {
		if n > 0 {
			plan.ByCause[cause] = n
			plan.Pending += n
		}
	}
	for _, at := range o.Filter.Places {
		switch how, ok := x.Find(at); {
		case !ok:
			plan.Missing = append(plan.Missing, at)
		case how != "":
			plan.Settled = append(plan.Settled, at)
		}
	}
	slices.SortFunc(plan.Missing, compare)
	return plan, spans, x, nil
}

func compare(a, b Place) int {
	if a.Partition != b.Partition {
		return a.Partition - b.Partition
	}
	return int(min(max(a.Offset-b.Offset, -1), 1))
}
