package deadletters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// sendTimeout bounds all attempts of one append: a person waits for the command.
const sendTimeout = 30 * time.Second

// finishTime is how long resolutions may still be written after the context has ended: half of the 10 s
// in which a process must stop.
const finishTime = 5 * time.Second

// AppendAll appends the records to a partition, in as few requests as they fit into, each within 30 s,
// and returns how many were acked. It stops at the first error, which is that of send.
func AppendAll(ctx context.Context, send wire.AppendFunc, topic string, partition int, records []wire.RawRecord) (acked int, err error) {
	for len(records) > 0 {
		n := wire.Fitting(records)
		sending, cancel := context.WithTimeout(ctx, sendTimeout)
		_, err := send(sending, topic, partition, records[:n])
		cancel()
		if err != nil {
			return acked, err
		}
		acked, records = acked+n, records[n:]
	}
	return acked, nil
}

// Result is what a redrive or a discard did.
type Result struct {
	Plan
	Done int `json:"done"` // dead letters that were sent or discarded, and marked
}

// Run redrives or discards the dead letters that are pending now, as MakePlan describes. It
// writes a resolution only after the record was acked. If the process is killed in between,
// the next run sends some records again, which is harmless. progress, if not nil, is called
// with the number of finished dead letters and their total. If Run fails, the result still
// counts what it did.
func (t *Topic) Run(ctx context.Context, o Options, progress func(done, total int64)) (Result, error) {
	return t.run(ctx, o, t.Log.Idempotent(nil), progress)
}

// run redrives or discards dead letters, or with a nil send only plans to.
func (t *Topic) run(ctx context.Context, o Options, send wire.AppendFunc, progress func(done, total int64)) (Result, error) {
	plan, spans, x, err := t.prepare(ctx, o)
	run := &run{Topic: t, o: o, result: Result{Plan: plan}, send: send}
	if err != nil || send == nil && o.How == wire.Discarded {
		return run.result, err
	}
	if o.How == wire.Redriven {
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

// run is the state of a redrive or a discard.
type run struct {
	*Topic
	o      Options
	result Result
	send   wire.AppendFunc // nil: nothing is sent
}

// destination is the destination of records that are appended together.
type destination struct {
	topic     string
	partition int
}

// batch handles the pending dead letters of one fetch. It sends all of them, and then writes the resolutions of
// those that were acked.
func (r *run) batch(ctx context.Context, letters []Letter) error {
	now := time.Now()
	if r.o.Now != nil {
		now = r.o.Now()
	}
	var settled []Letter
	moves := map[destination][]move{}
	for _, l := range letters {
		switch {
		case l.Resolution != "":
		case r.o.How == wire.Discarded:
			settled = append(settled, l)
		default:
			topic, m, refusal := r.o.Rules.decide(l, now)
			if refusal != "" {
				r.result.refuse(l, refusal)
				continue
			}
			if r.send == nil {
				r.result.To[topic]++
				continue
			}
			n, err := r.Log.Partitions(ctx, topic)
			if err != nil {
				return err
			}
			to := destination{topic, kafka.PartitionOf(m.Key, n)}
			moves[to] = append(moves[to], move{l, m.Raw()})
		}
	}
	var failed error
	for to, all := range moves {
		for len(all) > 0 && failed == nil {
			n := wire.Fitting(all)
			var sent []Letter
			sent, failed = r.move(ctx, to, all[:n])
			r.result.To[to.topic] += len(sent)
			settled, all = append(settled, sent...), all[n:]
		}
	}
	return errors.Join(r.resolution(ctx, settled), failed)
}

// move is a dead letter and the record to send.
type move struct {
	letter Letter
	record wire.RawRecord
}

// Size returns about how many bytes the record takes in a request.
func (m move) Size() int { return m.record.Size() }

// move sends records to one destination and returns the dead letters that were acked. If
// the broker refuses the records for good, move sends halves until it has found the refused
// ones, and adds a refusal for each.
func (r *run) move(ctx context.Context, to destination, moves []move) (sent []Letter, err error) {
	records := make([]wire.RawRecord, len(moves))
	for i, m := range moves {
		records[i] = m.record
	}
	switch _, err := AppendAll(ctx, r.send, to.topic, to.partition, records); {
	case err == nil:
		for _, m := range moves {
			sent = append(sent, m.letter)
		}
		return sent, nil
	case !errors.Is(err, wire.ErrRefused):
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

// resolution appends the resolutions of dead letters, each to the partition of its dead letter. It
// goes on for finishTime after ctx is canceled, because their records were acked already.
func (r *run) resolution(ctx context.Context, letters []Letter) error {
	resolutions := map[int][]wire.RawRecord{}
	for _, l := range letters {
		m := wire.Resolution{Partition: l.At.Partition, Offset: l.At.Offset, How: r.o.How}.Encode(l.Record.Key)
		resolutions[l.At.Partition] = append(resolutions[l.At.Partition], m.Raw())
	}
	finishing, stop := retry.WithFinishTime(ctx, finishTime)
	defer stop()
	for p, all := range resolutions {
		n, err := AppendAll(finishing, r.send, r.Name, p, all)
		if r.result.Done += n; err != nil {
			return fmt.Errorf("write resolutions of %d dead letters, %s, after they were handled: %w", len(all)-n, r.o.How, err)
		}
	}
	return nil
}
