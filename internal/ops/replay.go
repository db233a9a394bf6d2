package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// replayChunk bounds how many records are sent before the progress may be kept, and how many
// orders the database is asked about at once.
const replayChunk = 500

// ReplayWindow says which records to send again: those appended to Topic in [From, To), as far as
// the other fields do not restrict them.
type ReplayWindow struct {
	Topic string    `json:"topic"` // the close topic
	Into  string    `json:"into"`  // the replay topic
	From  time.Time `json:"from"`  // in whole milliseconds, as To
	To    time.Time `json:"to"`
	// Orders and Categories, if not empty, select the records of these orders and of these
	// categories. A record without a category has that of its order in the database.
	Orders     []string `json:"orders,omitempty"`
	Categories []string `json:"categories,omitempty"`
	// OnlyPartitions, if not empty, are the only partitions of Topic that are read.
	OnlyPartitions []int `json:"only_partitions,omitempty"`
	// Groups begins the name of the consumer group under which the progress is kept. Empty: the
	// progress is not kept.
	Groups string `json:"-"`
	// Restart begins at From, whatever an interrupted run of this replay has sent.
	Restart bool `json:"-"`
}

// ReplayPlan is what a replay reads. It is a snapshot of offsets: later appends do not change it.
type ReplayPlan struct {
	ReplayWindow
	Spans   []kafka.Span `json:"partitions"` // without those that were handled before
	Records int64        `json:"records"`    // offsets in Spans, an upper bound of what is sent
	// Handled counts the offsets that an earlier run of this replay has handled.
	Handled int64          `json:"handled"`
	Preview *ReplayPreview `json:"preview,omitempty"`
	// NotKept says why the progress cannot be kept, so that an interrupted run would begin again.
	NotKept string `json:"not_kept,omitempty"`

	group  string       // of the progress; empty: it is not kept
	window []kafka.Span // with what was handled before
}

// ErrNoSuchPartition says that ReplayWindow.OnlyPartitions names a partition that does not exist.
var ErrNoSuchPartition = errors.New("no such partition")

// PlanReplay is NewReplayPlan for the topics of the pipeline: it completes the window, which is in whole milliseconds then. The error
// wraps ErrNoKafka if the process knows no Kafka.
func (p Pipeline) PlanReplay(ctx context.Context, w ReplayWindow) (ReplayPlan, error) {
	if p.Kafka == nil {
		return ReplayPlan{}, ErrNoKafka
	}
	w.Topic, w.Into, w.Groups = p.Config.Topics.Close, p.Config.Topics.Replay, p.Config.ReplayProgressGroups()
	w.From, w.To = w.From.Truncate(time.Millisecond), orderclose.CeilMilli(w.To)
	return NewReplayPlan(ctx, p.Kafka, w)
}

// ReplayDatabase returns the database that knows the orders of a replay; nil: there is none.
func (p Pipeline) ReplayDatabase() ReplayDatabase {
	if p.Store == nil {
		return nil
	}
	return p.Store
}

// NewReplayPlan plans the replay of a window of the close topic. On-call uses a replay after a
// closer misbehaved. The records go to a topic of their own, so that they do not delay orders
// that become due now. Closing an order twice changes nothing: a window that is too large only
// costs time. If an earlier run of the same replay was interrupted, the plan continues it.
func NewReplayPlan(ctx context.Context, log Log, w ReplayWindow) (ReplayPlan, error) {
	w.From, w.To = w.From.UTC(), w.To.UTC()
	p := ReplayPlan{ReplayWindow: w}
	if !w.From.Before(w.To) {
		return p, fmt.Errorf("the window from %s to %s is empty", w.From.Format(time.RFC3339), w.To.Format(time.RFC3339))
	}
	n, err := log.Partitions(ctx, w.Topic)
	if err != nil {
		return p, err
	}
	for _, partition := range w.OnlyPartitions {
		if partition < 0 || partition >= n {
			return p, fmt.Errorf("%w: %s has the partitions 0 to %d, and not %d", ErrNoSuchPartition, w.Topic, n-1, partition)
		}
	}
	if p.window, err = log.Window(ctx, w.Topic, kafka.MomentOf(w.From), kafka.MomentOf(w.To)); err != nil {
		return p, err
	}
	p.window = slices.DeleteFunc(p.window, func(s kafka.Span) bool { // partitions may just have been added
		return s.Partition >= n || len(w.OnlyPartitions) > 0 && !slices.Contains(w.OnlyPartitions, s.Partition)
	})
	if err := p.resume(ctx, log, n); err != nil {
		return p, err
	}
	p.Records = kafka.TotalLen(p.Spans)
	return p, nil
}

// ReplayRate is the default rate of a replay, in records a second: a fifth to a third of what a database with
// two cores closes, as the rate of a sweep.
const ReplayRate = 5000

// ReplayOptions say how a replay is carried out.
type ReplayOptions struct {
	// Rate bounds how many records are sent a second; 0: no bound.
	Rate int
	// Database has the categories of orders whose records have none. Nil: such a record is an
	// error if the window selects categories.
	Database ReplayDatabase
	// Progress, if not nil, is called with the number of records handled so far.
	Progress func(done int64)
}

// ReplayResult is the outcome of Replay.
type ReplayResult struct {
	ReplayPlan
	Sent    int `json:"sent"`
	Skipped int `json:"passed"` // skipped: replays, and invalid records
	// Unselected counts the records of other orders and categories.
	Unselected int `json:"unselected"`
	// Refused counts the records that Into refuses for good, such as those that are too large with the header of a replay. They
	// are passed over. Refusals has the first, with their positions in Topic.
	Refused  int                   `json:"refused"`
	Refusals []deadletters.Refusal `json:"refusals,omitempty"`
	// Missing are those of Orders that have no record in the window. It is empty if an earlier run
	// has handled a part of the window.
	Missing []string `json:"missing,omitempty"`
}

// ErrReplayRefused says that a replay has sent all records but those that its topic refuses.
var ErrReplayRefused = errors.New("records are refused, and passed over")

// handled returns how many records of the plan were handled.
func (r *ReplayResult) handled() int64 { return int64(r.Sent + r.Skipped + r.Unselected + r.Refused) }

// Replay sends the records of the plan again, on the replay lane and with a full number of
// retries. It reads only the close topic and writes only to the replay topic, so it never sends
// a record that a replay sent. It keeps its progress once a second: a run of the same window
// after an interruption repeats the records of about a second, which changes nothing, because
// their orders are closed. If Into refuses records for good, Replay passes them over and sends all others; the error wraps
// ErrReplayRefused. If Replay fails, the result still counts the records that it handled.
func Replay(ctx context.Context, log Log, p ReplayPlan, o ReplayOptions) (ReplayResult, error) {
	run := replayRun{
		log: log, o: o, chunk: replayChunk, limiter: rate.NewLimiter(rate.Inf, 0),
		r:        ReplayResult{ReplayPlan: p},
		selector: newReplaySelector(p.ReplayWindow, o.Database),
		progress: replayProgress{log: log, topic: p.Topic, group: p.group, notKept: map[int]error{}},
	}
	run.sender = deadletters.NewSender(log, func(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
		return log.GroupForClaim(ctx, run.claim, topic, records)
	})
	if o.Rate > 0 {
		run.chunk = min(max(o.Rate/10, 1), replayChunk) // so that records flow steadily
		run.limiter = rate.NewLimiter(rate.Limit(o.Rate), run.chunk)
	}
	if p.Restart {
		for _, s := range p.window {
			if err := run.progress.keep(ctx, s.Partition, s.First); err != nil { // a run that continues would leave the partition out
				return run.r, fmt.Errorf("begin the replay of %s/%d again: %w", p.Topic, s.Partition, err)
			}
		}
	}
	var err error
	for _, span := range p.Spans {
		if err = run.span(ctx, span); err != nil {
			err = fmt.Errorf("replay of %s/%d: %w", p.Topic, span.Partition, err)
			break
		}
	}
	if err == nil && run.r.Refused > 0 {
		err = fmt.Errorf("%w: %d, such as %s of order %q: %s. A compensator closes their orders: orderclose compensate. Or raise max.message.bytes of %s, and "+
			"replay them with --order",
			ErrReplayRefused, run.r.Refused, run.r.Refusals[0].At, run.r.Refusals[0].Key, run.r.Refusals[0].Why, p.Into)
	}
	run.r.NotKept = cmp.Or(run.progress.problem(), p.NotKept)
	if (err == nil || errors.Is(err, ErrReplayRefused)) && p.Handled == 0 {
		run.r.Missing = run.selector.missing()
	}
	return run.r, err
}

// replayRun is one run of Replay.
type replayRun struct {
	log      Log
	o        ReplayOptions
	chunk    int
	limiter  *rate.Limiter
	selector *replaySelector
	progress replayProgress
	sender   *send.Sender
	claim    wire.Claim // the partition that is read
	r        ReplayResult
}

// span sends the records of a span, and keeps the progress, also if it fails.
func (run *replayRun) span(ctx context.Context, span kafka.Span) error {
	run.claim = wire.Claim{Topic: run.r.Topic, Partition: span.Partition}
	done := span.First // the records below are handled
	err := run.log.ReadSpan(ctx, run.r.Topic, span, func(records []wire.RawRecord) error {
		for chunk := range slices.Chunk(records, run.chunk) {
			if err := run.sendChunk(ctx, chunk); err != nil {
				return err
			}
			done = chunk[len(chunk)-1].Offset + 1
			if time.Since(run.progress.kept) >= keepEvery {
				_ = run.progress.keep(ctx, span.Partition, done) // problem reports it
			}
			if run.o.Progress != nil {
				run.o.Progress(run.r.handled())
			}
		}
		return nil
	})
	if err == nil {
		done = span.End
	}
	_ = run.progress.keep(ctx, span.Partition, done)
	return err
}

// sendChunk sends those of the records that are selected.
func (run *replayRun) sendChunk(ctx context.Context, chunk []wire.RawRecord) error {
	selected, err := run.selector.selectFrom(ctx, run.claim.Partition, chunk)
	if err != nil {
		return err
	}
	if err := run.limiter.WaitN(ctx, len(selected.records)); err != nil {
		return err
	}
	run.r.Skipped += selected.skipped
	run.r.Unselected += selected.unselected
	again := make([]wire.RawRecord, len(selected.records))
	for i, r := range selected.records {
		m := r.message.Resend()
		again[i] = m.Raw()
	}
	sending, cancel := context.WithTimeout(ctx, deadletters.SendTimeout)
	defer cancel()
	run.sender.AppendAll(sending, map[string][]wire.RawRecord{run.r.Into: again}, func(sent send.Result) {
		n, _ := deadletters.Acked(sent)
		run.r.Sent += n
		for _, refused := range sent.Refused {
			if run.r.Refused++; len(run.r.Refusals) < deadletters.MaxNamed {
				at := deadletters.Position{Partition: run.claim.Partition, Offset: refused.Record.Offset}
				run.r.Refusals = append(run.r.Refusals, deadletters.Refusal{At: at, Key: string(refused.Record.Key()), Why: refused.Err.Error()})
			}
		}
		err = cmp.Or(err, sent.Err)
	})
	return err
}
