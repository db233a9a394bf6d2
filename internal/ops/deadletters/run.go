package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// SendTimeout bounds an append of one fetch: a person waits for the command.
const SendTimeout = 30 * time.Second

// finishTime is how long resolutions may still be written after the context has ended: half of the 10 s in which a process must stop.
const finishTime = 5 * time.Second

// NewSender returns a sender for a command. It logs nothing, because the command ends with the first error. If the look-up of the partitions fails, and
// the error may pass, the sender repeats the look-up until the deadline. It repeats appends in the same way.
func NewSender(log send.Producers, group send.GroupFunc) *send.Sender {
	quiet := slog.New(slog.DiscardHandler)
	repeated := func(ctx context.Context, topic string, records []wire.RawRecord) (parts map[int][]wire.RawRecord, err error) {
		err = ctx.Err()
		retry.Do(ctx, quiet, "look up partitions", func(context.Context) error {
			if parts, err = group(ctx, topic, records); kafka.Passes(err) {
				return err
			}
			return nil
		})
		return parts, err
	}
	return send.New(send.Options{Producers: log, Group: repeated, Logger: quiet})
}

// Acked returns how many records were acked, and why others were not.
func Acked(sent send.Result) (n int, err error) {
	for _, request := range sent.Acked {
		n += len(request.Records)
	}
	if len(sent.Refused) > 0 {
		err = sent.Refused[0].Err
	}
	return n, cmp.Or(sent.Err, err)
}

// Result is what a redrive or a discard did.
type Result struct {
	Plan
	Done int `json:"done"` // dead letters that were sent or discarded, and marked
}

// Run redrives or discards the dead letters that are pending now, as MakePlan describes. It writes a resolution only after the record was acked. If the
// process is killed in between, the next run sends some records again, which is harmless. progress, if not nil, is called with the number of finished
// dead letters and their total. If Run fails, the result still counts what it did.
func (t *Topic) Run(ctx context.Context, o Options, progress func(done, total int64)) (Result, error) {
	return t.run(ctx, o, NewSender(t.Log, t.Log.GroupByKey), progress)
}

// run redrives or discards dead letters, or with a nil sender only plans to.
func (t *Topic) run(ctx context.Context, o Options, sender *send.Sender, progress func(done, total int64)) (Result, error) {
	plan, spans, x, err := t.prepare(ctx, o)
	run := &run{Topic: t, o: o, result: Result{Plan: plan}, sender: sender}
	if err != nil || sender == nil && o.How == wire.Discarded {
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
	sender *send.Sender // nil: nothing is sent
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
		case r.o.How == wire.Discarded:
			settled = append(settled, l)
		default:
			topic, m, refusal := r.o.Rules.decide(l, now)
			if refusal != "" {
				r.result.refuse(l, refusal)
				continue
			}
			if r.sender == nil {
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
	sending, cancel := context.WithTimeout(ctx, SendTimeout)
	defer cancel()
	r.sender.AppendAll(sending, records, func(sent send.Result) {
		for _, request := range sent.Acked {
			r.result.To[sent.Topic] += len(request.Records)
			for _, record := range request.Records {
				settled = append(settled, letters[record.Offset])
			}
		}
		for _, refused := range sent.Refused {
			r.result.refuse(letters[refused.Record.Offset], refused.Err.Error())
		}
		failed = cmp.Or(failed, sent.Err)
	})
	return errors.Join(r.resolution(ctx, settled), failed)
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
	finishing, cancel := context.WithTimeout(finishing, SendTimeout)
	defer cancel()
	for p, all := range resolutions {
		n, err := Acked(r.sender.Append(finishing, send.Destination{Topic: r.Name, Partition: p}, all))
		if r.result.Done += n; err != nil {
			return fmt.Errorf("write resolutions of %d dead letters, %s, after they were handled: %w", len(all)-n, r.o.How, err)
		}
	}
	return nil
}
