package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// sendTimeout bounds an append of one fetch: a person waits for the command.
const sendTimeout = 30 * time.Second

// Send appends records with start, and what is left again while its error may pass, for 30 s.
func Send(ctx context.Context, records []wire.RawRecord, start func(ctx context.Context, records []wire.RawRecord, done func(send.Result))) (all send.Result) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	for {
		r := send.Wait(func(done func(send.Result)) { start(ctx, records, done) })
		if ctx.Err() != nil {
			r.Err = cmp.Or(all.Err, r.Err)
		}
		r.Acked, r.Refused = append(all.Acked, r.Acked...), append(all.Refused, r.Refused...)
		if all, records = r, r.Left; len(records) == 0 || !kafka.Passes(r.Err) || !retry.Sleep(ctx, r.Pause) {
			return all
		}
	}
}

// finishTime is how long resolutions may still be written after the context has ended: half of the 10 s in which a process must stop.
const finishTime = 5 * time.Second

// Result is what a redrive or a discard did.
type Result struct {
	Plan
	Done int `json:"done"` // dead letters that were sent or discarded, and marked
}

// Run redrives or discards the dead letters that are pending now, as MakePlan describes. It writes a resolution only after the record was acked. If the
// process is killed in between, the next run sends some records again, which is harmless. progress, if not nil, is called with the number of finished
// dead letters and their total. If Run fails, the result still counts what it did.
func (t *Topic) Run(ctx context.Context, o Options, progress func(done, total int64)) (Result, error) {
	return t.run(ctx, o, false, progress)
}

// run redrives or discards dead letters, or only plans to.
func (t *Topic) run(ctx context.Context, o Options, onlyPlan bool, progress func(done, total int64)) (Result, error) {
	plan, spans, x, err := t.prepare(ctx, o)
	run := &run{Topic: t, o: o, result: Result{Plan: plan}, onlyPlan: onlyPlan}
	if err != nil || onlyPlan && o.How == Discarded {
		return run.result, err
	}
	if o.How == Redriven {
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
	o        Options
	result   Result
	onlyPlan bool // nothing is sent
}

// batch handles the pending dead letters of one fetch. It sends all of them, and then writes the resolutions of those that were acked.
func (r *run) batch(ctx context.Context, letters []Letter) error {
	now := time.Now()
	if r.o.Now != nil {
		now = r.o.Now()
	}
	var settled []Letter
	records := map[string][]wire.RawRecord{} // by topic; the offset of each is the index of its letter
	for i, l := range letters {
		switch {
		case l.Resolution != "":
		case r.o.How == Discarded:
			settled = append(settled, l)
		default:
			topic, m, refusal := r.o.Rules.decide(l, now)
			if refusal != "" {
				r.result.refuse(l, refusal)
				continue
			}
			if r.onlyPlan {
				r.result.To[topic]++
				continue
			}
			m.Offset = int64(i)
			records[topic] = append(records[topic], m.Raw())
		}
	}
	if len(records)+len(settled) == 0 {
		return nil
	}
	var failed error
	for topic, some := range records {
		sent := Send(ctx, some, func(ctx context.Context, records []wire.RawRecord, done func(send.Result)) {
			r.Log.Send(ctx, topic, records, done)
		})
		r.result.To[topic] += sent.CountAcked()
		for _, request := range sent.Acked {
			for _, record := range request.Records {
				settled = append(settled, letters[record.Offset])
			}
		}
		for _, refused := range sent.Refused {
			r.result.refuse(letters[refused.Record.Offset], refused.Err.Error())
		}
		if len(sent.Left) > 0 {
			failed = sent.Err
			break
		}
	}
	return errors.Join(r.resolution(ctx, settled), failed)
}

// resolution appends the resolutions of dead letters, each to the partition of its dead letter. It
// goes on for finishTime after ctx is canceled, because their records were acked already.
func (r *run) resolution(ctx context.Context, letters []Letter) error {
	resolutions := map[int][]wire.RawRecord{}
	for _, l := range letters {
		m := Resolution{Partition: l.At.Partition, Offset: l.At.Offset, How: r.o.How}.Encode(l.Record.Key)
		resolutions[l.At.Partition] = append(resolutions[l.At.Partition], m.Raw())
	}
	finishing, stop := retry.WithFinishTime(ctx, finishTime)
	defer stop()
	for p, all := range resolutions {
		sent := Send(finishing, all, func(ctx context.Context, records []wire.RawRecord, done func(send.Result)) {
			r.Log.SendTo(ctx, r.Name, p, records, done)
		})
		n := sent.CountAcked()
		if r.result.Done += n; sent.Error() != nil {
			return fmt.Errorf("write resolutions of %d dead letters, %s, after they were handled: %w", len(all)-n, r.o.How, sent.Error())
		}
	}
	return nil
}
