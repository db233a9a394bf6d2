package deadletters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
)

// sendTimeout bounds the tries for one append: a person waits.
const sendTimeout = 30 * time.Second

// Result is what a redrive or a discard did.
type Result struct {
	Plan
	Done int `json:"done"` // dead letters that were sent, or put aside, and marked
}

// Run does what MakePlan says it would, to the dead letters that are pending by
// now. A dead letter gets its mark only after its record was acked where it went:
// whoever is killed in between leaves some to be sent once more, which is
// harmless. progress, if not nil, hears how many are done of how many. The result
// counts what was done also if an error ended it.
func (t *Topic) Run(ctx context.Context, o Options, progress func(done, total int64)) (Result, error) {
	plan, spans, x, err := t.begin(ctx, o)
	run := &run{Topic: t, o: o, result: Result{Plan: plan}, send: t.Log.Idempotent(nil, nil)}
	if err != nil {
		return run.result, err
	}
	if o.How == orderclose.Redriven {
		run.result.To = map[string]int{}
	}
	err = t.Letters(ctx, spans, x, func(letters []Letter) error {
		err := run.batch(ctx, letters)
		if progress != nil {
			progress(int64(run.result.Done+run.result.Refused), int64(plan.Pending))
		}
		return err
	})
	return run.result, err
}

// run is a redrive or a discard under way.
type run struct {
	*Topic
	o      Options
	result Result
	send   orderclose.AppendFunc
}

// bound is where records go together.
type bound struct {
	topic     string
	partition int
}

// batch settles the pending ones of a fetch: first all are sent, then those that
// were acked are marked.
func (r *run) batch(ctx context.Context, letters []Letter) error {
	now := r.o.now()
	var settled []Letter
	moves := map[bound][]move{}
	for _, l := range letters {
		switch {
		case l.Settle != "":
		case r.o.How == orderclose.Discarded:
			settled = append(settled, l)
		default:
			topic, m, refusal := r.o.Rules.decide(l, now)
			if refusal != "" {
				r.result.refuse(l, refusal)
				continue
			}
			n, err := r.Log.Partitions(ctx, topic)
			if err != nil {
				return err
			}
			to := bound{topic, kafka.PartitionOf(m.Key, n)}
			moves[to] = append(moves[to], move{l, m.Raw()})
		}
	}
	var failed error
	for to, all := range moves {
		for len(all) > 0 && failed == nil {
			n := orderclose.Fitting(all)
			var sent []Letter
			sent, failed = r.move(ctx, to, all[:n])
			r.result.To[to.topic] += len(sent)
			settled, all = append(settled, sent...), all[n:]
		}
	}
	return errors.Join(r.mark(ctx, settled), failed)
}

// move is a dead letter and what it is sent as.
type move struct {
	letter Letter
	record orderclose.RawRecord
}

// Size is roughly what sending it takes, in bytes.
func (m move) Size() int { return m.record.Size() }

// move sends records that go together and returns those that were acked. What the
// broker refuses for good is tried in halves, down to those to blame, which are
// refusals.
func (r *run) move(ctx context.Context, to bound, moves []move) (sent []Letter, err error) {
	records := make([]orderclose.RawRecord, len(moves))
	for i, m := range moves {
		records[i] = m.record
	}
	switch err := r.append(ctx, to, records); {
	case err == nil:
		for _, m := range moves {
			sent = append(sent, m.letter)
		}
		return sent, nil
	case !errors.Is(err, orderclose.ErrRefused):
		return nil, err
	case len(moves) == 1:
		r.result.refuse(moves[0].letter, err.Error())
		return nil, nil
	}
	half := len(moves) / 2
	if sent, err = r.move(ctx, to, moves[:half]); err != nil {
		return sent, err
	}
	rest, err := r.move(ctx, to, moves[half:])
	return append(sent, rest...), err
}

// mark appends the marks of dead letters, each to its own partition.
func (r *run) mark(ctx context.Context, letters []Letter) error {
	marks := map[int][]orderclose.RawRecord{}
	for _, l := range letters {
		m := orderclose.Mark{Partition: l.At.Partition, Offset: l.At.Offset, How: r.o.How}.Encode(l.Record.Key)
		marks[l.At.Partition] = append(marks[l.At.Partition], m.Raw())
	}
	for p, all := range marks {
		for len(all) > 0 {
			n := orderclose.Fitting(all)
			if err := r.append(ctx, bound{r.Name, p}, all[:n]); err != nil {
				return fmt.Errorf("%d are done and could not be marked as %s: %w", len(all), r.o.How, err)
			}
			r.result.Done += n
			all = all[n:]
		}
	}
	return nil
}

// append tries within sendTimeout. What was acked is marked even if the person at
// the keyboard has had enough.
func (r *run) append(ctx context.Context, to bound, records []orderclose.RawRecord) error {
	if to.topic == r.Name {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	_, err := r.send(ctx, to.topic, to.partition, records)
	return err
}
